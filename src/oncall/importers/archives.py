"""Unpack archives of recordings for the time of the import."""

from __future__ import annotations

import bz2
import errno
import gzip
import lzma
import os
import shutil
import stat
import struct
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Any, BinaryIO

from oncall.core.errors import Unreadable
from oncall.importers.bounds import DEFAULT, Bounds, size
from oncall.importers.files import open_file, walk

SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".txz", ".tar.bz2", ".zip")

_CHUNK_BYTES = 1 << 20
_MOST_NESTED = 3  # archives inside archives: a node's, of a job's, of a case's
_ZIP_END = b"PK\x05\x06"
_ZIP_END_BYTES = 22 + 0xFFFF  # the end record, and the longest comment behind it
_ZIP_ENTRY = b"PK\x01\x02"
_ZIP_ENTRY_BYTES = 256  # of an entry of the table of contents: 46, and its name and times
_PACKED: dict[bytes, Callable[[BinaryIO], Any]] = {
    b"\x1f\x8b": lambda file: gzip.GzipFile(fileobj=file),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\0": lzma.LZMAFile,
}
_MOST_HEADER_BYTES = 8 << 20  # of what tar reads at once: a name, and extended attributes
# An archive may hold a name that this machine cannot have; the rest is unpacked.
_OF_THE_NAME = {errno.ENAMETOOLONG, errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.EILSEQ}


@dataclass
class Unpacked:
    """The paths to read, the archive that each temporary folder stands for, and of archives that
    were not unpacked, or not to their end, why. `given` are the paths before."""

    given: Sequence[Path]
    paths: list[Path]
    origin: dict[Path, Path] = field(default_factory=dict)
    problems: dict[Path, str] = field(default_factory=dict)

    def place(self, folder: Path) -> Path:
        """Where a folder lies for whoever gave the paths: an archive counts as a folder."""
        for room, archive in self.origin.items():
            if folder.is_relative_to(room):
                return archive.with_name(stem(archive)) / folder.relative_to(room)
        return folder


@contextmanager
def unpacked(paths: Sequence[Path], bounds: Bounds = DEFAULT) -> Iterator[Unpacked]:
    """The paths with every archive among them, inside their folders, or inside one another,
    unpacked beside the rest.

    The folders are gone afterwards. What an archive holds before its damage, or before more than a
    recording holds, is there; nothing is written outside its folder.
    """
    archives = [archive for path in paths for archive in _archives(path, bounds)]
    if not archives:
        yield Unpacked(paths, list(paths))
        return
    with tempfile.TemporaryDirectory(prefix="oncall-") as room:
        found = Unpacked(paths, [path for path in paths if path not in archives])
        for number, archive in enumerate(archives):
            folder = Path(room, f"{number:06}")  # so that none begins as another does
            folder.mkdir()
            found.origin[folder] = archive
            found.paths.append(folder)
            for place, problem in _unpack_all(archive, folder, bounds):
                found.problems[place] = problem
        yield found


def _unpack_all(archive: Path, folder: Path, bounds: Bounds) -> Iterator[tuple[Path, str]]:
    """Unpack an archive and those inside it, each of which becomes a folder of its name; gives
    those that were not unpacked to their end, and why. All share the bounds of the outermost."""
    try:
        room = _Room(folder, archive.stat().st_size, bounds)
    except OSError as error:
        yield archive, error.strerror or str(error)
        return
    packed = [(archive, folder)]
    for _ in range(_MOST_NESTED):
        inside: list[tuple[Path, Path]] = []
        for file, place in packed:
            problem = _unpack(file, place, room)
            if problem is not None:
                inner = () if file is archive else file.relative_to(folder).parts
                yield archive.joinpath(*inner), problem
            if file is not archive:
                file.unlink()
                place = place.rename(file)
            inside += [(one, one.with_name(one.name + "~")) for one in _archives(place, bounds)]
        packed = inside
        for _, place in packed:
            place.mkdir(exist_ok=True)


def _archives(path: Path, bounds: Bounds) -> Iterator[Path]:
    if path.is_dir():
        yield from (file for file in walk(path, bounds) if _is_archive(file))
    elif _is_archive(path):
        yield path


def _is_archive(path: Path) -> bool:
    return path.name.lower().endswith(SUFFIXES) and path.is_file()


def stem(archive: Path) -> str:
    """An archive's name without the ending that says how it is packed."""
    suffix = max((s for s in SUFFIXES if archive.name.lower().endswith(s)), key=len)
    return archive.name[: -len(suffix)] or "archive"


def _unpack(archive: Path, folder: Path, room: _Room) -> str | None:
    """Unpack what can be; returns why it is not all."""
    try:
        with open_file(archive) as file:
            room.enter(folder)
            unpack = _unzip if archive.name.lower().endswith(".zip") else _untar
            unpack(file, room)
            return room.problem
    except Unreadable as error:
        return str(error)
    except Exception as error:  # these libraries raise nearly any type on damaged input
        return f"cannot be unpacked: {str(error) or type(error).__name__}"


class _Sparing:
    """The bytes of a tar file. A header may say that gigabytes of header follow, which the library
    would read at once."""

    def __init__(self, file: BinaryIO) -> None:
        magic = file.peek(6)[:6]  # type: ignore[attr-defined]
        opens = next((opens for start, opens in _PACKED.items() if magic.startswith(start)), None)
        self._file: IO[bytes] = opens(file) if opens else file
        self.seek, self.tell = self._file.seek, self._file.tell

    def read(self, count: int) -> bytes:
        if count > _MOST_HEADER_BYTES:
            raise Unreadable(f"damaged: a header of {size(count)}")
        return self._file.read(count)


def _untar(file: BinaryIO, room: _Room) -> None:
    with tarfile.open(fileobj=_Sparing(file), mode="r:") as tar:  # type: ignore[call-overload]
        for member in tar:
            # What was read of the contents would be kept: millions of folders take gigabytes.
            tar.members = []
            room.count()
            if member.isfile():
                room.expect(member.size)
                content = tar.extractfile(member)
                assert content is not None  # it is a file
                room.write(member.name, content, member.size)


def _unzip(file: BinaryIO, room: _Room) -> None:
    _check_contents(file, room)
    with zipfile.ZipFile(file) as packed:
        for entry in packed.infolist():
            room.count()
            if not entry.is_dir() and not stat.S_ISLNK(entry.external_attr >> 16):
                room.expect(entry.file_size)
                with packed.open(entry) as content:
                    room.write(entry.filename, content, entry.file_size)


def _check_contents(file: BinaryIO, room: _Room) -> None:
    """Whether the table of contents, which the library reads whole, is one of so many files."""
    end = file.seek(0, os.SEEK_END)
    file.seek(max(0, end - _ZIP_END_BYTES))
    tail = file.read()
    at = tail.rfind(_ZIP_END)
    if 0 <= at <= len(tail) - 22:
        (contents_bytes,) = struct.unpack_from("<I", tail, at + 12)
        most = room.most_files * _ZIP_ENTRY_BYTES
        file.seek(max(0, end - _ZIP_END_BYTES - min(contents_bytes, most)))
        if contents_bytes > most or file.read().count(_ZIP_ENTRY) > room.most_files:
            raise room.too_many()
    file.seek(0)


class _Room:
    """The folders that an archive and those inside it are unpacked into. Raises Unreadable where
    they hold too much.

    Sizes that an archive states are checked before, and unpacked bytes are counted: headers lie.
    """

    def __init__(self, folder: Path, packed_bytes: int, bounds: Bounds) -> None:
        free = shutil.disk_usage(folder).free // 2
        explained = max(bounds.freely_expanded_bytes, packed_bytes * bounds.expansion)
        self._most = self._left = min(bounds.expanded_bytes, explained, free)
        self._files = self.most_files = bounds.files
        self.enter(folder)

    def enter(self, folder: Path) -> None:
        """What is written now goes there."""
        self._folder = folder
        self.problem: str | None = None  # of a file that was left out

    def count(self) -> None:
        """One more file, folder or link."""
        self._files -= 1
        if self._files < 0:
            raise self.too_many()

    def expect(self, stated_bytes: int) -> None:
        """A file that says it is so large."""
        if stated_bytes > self._left:
            raise self._too_large()

    def write(self, name: str, content: IO[bytes], stated_bytes: int) -> None:
        """Unpack one file, unless its name leads outside of the folder."""
        parts = [part for part in PurePosixPath(name.replace("\\", "/")).parts if part != "/"]
        if not parts or ".." in parts:
            self._leave_out(f"refused: it would write outside its folder ({name[:100]})")
            return
        place = self._folder.joinpath(*parts)
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            self._copy(place, content, stated_bytes)
        except OSError as error:
            if error.errno not in _OF_THE_NAME:
                raise
            self._leave_out(f"{name[:100]} in it cannot be unpacked: {error.strerror}")

    def _leave_out(self, problem: str) -> None:
        self.problem = self.problem or problem

    def _copy(self, place: Path, content: IO[bytes], stated_bytes: int) -> None:
        with place.open("wb") as out:
            while data := content.read(_CHUNK_BYTES):
                self._left -= len(data)
                if self._left < 0:
                    raise self._too_large()
                out.write(data)
            if out.tell() < stated_bytes:
                raise Unreadable("cannot be unpacked further: it ends within a file")

    def too_many(self) -> Unreadable:
        return Unreadable(f"more than {self.most_files:,} files and folders in it; split it")

    def _too_large(self) -> Unreadable:
        return Unreadable(
            f"unpacks to more than the {size(self._most)} that an archive of its size or the disk "
            "should hold; unpack it yourself"
        )
