"""The files of recordings: opened safely, listed and read within the bounds.

A folder of dumps may contain named pipes (PyTorch's own), cycles of links, and files that grow,
vanish or may not be read. Only regular files are read, and nothing blocks on others. The mark that
editors put before UTF-8 belongs to none.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from oncall.core.errors import BadInput, Unreadable
from oncall.importers.bounds import DEFAULT, Bounds, Meter, check_document
from oncall.importers.packed import LONGEST_MAGIC, Readable, packing
from oncall.importers.so_far import has_read

_CHUNK_BYTES = 1 << 20
_COLOUR = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07\n]{0,200}\x07")
_KINDS = (
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISDIR, "a folder"),
)


def open_file(path: Path) -> BinaryIO:
    """A regular file, open for reading. Raises Unreadable for anything else.

    What a path names can change after it was looked at, so the open file itself is asked, and
    opening never waits: a pipe without a writer would do so for ever.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        # A socket cannot be opened at all.
        if getattr(error, "errno", None) == errno.ENXIO:
            raise Unreadable("a socket or a device, not a file") from error
        raise Unreadable(getattr(error, "strerror", None) or str(error)) from error
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise Unreadable(f"{kind(mode)}, not a file")
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def kind(mode: int) -> str:
    """What a path names, in words."""
    return next((name for is_kind, name in _KINDS if is_kind(mode)), "no regular file")


def head(path: Path, count: int) -> bytes:
    """The first bytes of a file; of a packed one, what its first bytes unpack to: nothing if it is
    damaged, and itself where nothing here unpacks it. Raises Unreadable."""
    with open_file(path) as file:
        start = _read(file, count)
    packed = packing(start)
    if packed is None or not packed.errors():
        return start.removeprefix(BOM_UTF8)
    try:
        with Stream(path) as stream:
            return stream.read(count)
    except Unreadable:
        return b""


def is_packed(path: Path) -> bool:
    """Whether a file's bytes are not its content (`packed`). Raises Unreadable."""
    with open_file(path) as file:
        return packing(_read(file, LONGEST_MAGIC)) is not None


def whole(path: Path, factor: float, bounds: Bounds = DEFAULT) -> bytes:
    """All bytes of a file, unpacked if it is compressed, whose parsing takes `factor` bytes of
    memory a byte. Raises Unreadable.

    No more is read than the file had when it was opened: one that grows meanwhile is read to
    there, and what has no size (in /proc) to the first mebibyte.
    """
    with open_file(path) as file:
        if packing(_read(file, LONGEST_MAGIC)) is None:
            file.seek(0)
            size = os.fstat(file.fileno()).st_size
            check_document(size, factor, bounds)
            data = _read(file, size or _CHUNK_BYTES)
            has_read(len(data))
            return data.removeprefix(BOM_UTF8)
    return _unpacked(path, factor, bounds)


def text(path: Path, factor: float) -> str:
    """All of a text file, as `whole` reads it, without colours."""
    return uncoloured(whole(path, factor)).decode("utf-8", "replace")


def uncoloured(data: bytes) -> bytes:
    """Text without what colours it or titles a window: `grep --color` puts it inside of words."""
    return _COLOUR.sub(b"", data) if b"\x1b" in data else data


def lines(text: str) -> list[str]:
    """The lines of a text, each as far as any is read: reading one takes a bounded time."""
    return [line[: DEFAULT.text_line_bytes] for line in text.splitlines()]


def modified_ns(path: Path) -> int:
    """When a file was written last. Raises Unreadable."""
    try:
        return path.stat().st_mtime_ns
    except OSError as error:
        raise Unreadable(error.strerror or str(error)) from error


def _read(file: BinaryIO, count: int) -> bytes:
    try:
        return file.read(count) or b""  # None where reading would have to wait
    except OSError as error:
        raise Unreadable(error.strerror or str(error)) from error


# ---------------------------------------------------------------- compressed


def _unpacked(path: Path, factor: float, bounds: Bounds) -> bytes:
    data = bytearray()
    with Stream(path, bounds) as stream:
        while part := stream.read(_CHUNK_BYTES):
            data += part
            check_document(len(data), factor, bounds)
    return bytes(data)


class Stream:
    """The bytes of a file, unpacked if it is packed, piece by piece and metered.

    It gives all it can before it complains of a torn end, or of a bound. A context manager.
    """

    def __init__(self, path: Path, bounds: Bounds = DEFAULT) -> None:
        """Raises Unreadable for what is no file, or packed in a way that nothing here reads."""
        self._file = open_file(path)
        self._at = 0  # in the file
        packed = packing(self._file.peek(LONGEST_MAGIC))  # type: ignore[attr-defined]
        size = os.fstat(self._file.fileno()).st_size
        self.meter = Meter(None if packed is None else size, bounds)
        try:
            self._bytes: Readable = self._file
            if packed is not None:
                self._bytes = packed.opened(self._file, self.meter.check_time)
        except Unreadable:
            self._file.close()
            raise
        of_packing = () if packed is None else packed.errors()
        self._damage: tuple[type[Exception], ...] = (OSError, *of_packing)

    def read(self, count: int) -> bytes:
        """Up to `count` bytes, none at the end. Raises Unreadable at damage and at a bound."""
        try:
            data = self._bytes.read(count)
        except self._damage as error:
            raise Unreadable(f"cannot be unpacked further: {error}") from error
        before, self._at = self._at, self._file.tell()
        has_read(self._at - before)
        self.meter.take(len(data))
        return data if before else data.removeprefix(BOM_UTF8)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


# -------------------------------------------------------------------- folders


def files_in(folder: Path, suffixes: Sequence[str]) -> list[Path]:
    """What a folder itself holds that ends so, in the order of names, as far as one looks."""
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in islice(entries, DEFAULT.files)]
    except OSError:
        return []
    return [folder / name for name in sorted(names) if name.rpartition(".")[2] in suffixes]


def walk(root: Path, bounds: Bounds = DEFAULT) -> Iterator[Path]:
    """Every path in a folder and the folders in it, hidden ones left out, in the order of names.

    Links to folders are not followed, which avoids cycles. An unreadable folder is yielded itself.
    Raises BadInput if there are more paths than a recording has.
    """
    left = bounds.files
    folders = [root]
    while folders:
        folder = folders.pop()
        names: list[tuple[str, bool]] = []
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    left -= 1
                    if left < 0:
                        raise BadInput(
                            str(root),
                            f"more than {bounds.files:,} files and folders in it; give the folder "
                            "of one recording",
                        )
                    if not entry.name.startswith("."):
                        names.append((entry.name, entry.is_dir(follow_symlinks=False)))
        except OSError:
            yield folder
            continue
        names.sort()
        yield from (Path(folder, name) for name, is_folder in names if not is_folder)
        folders += [Path(folder, name) for name, is_folder in reversed(names) if is_folder]
