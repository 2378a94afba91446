"""Files whose bytes are not their content: compressed ones, and text in UTF-16.

Their first bytes say which. What unpacks them reads piece by piece and keeps what it must only.
"""

from __future__ import annotations

import bz2
import codecs
import lzma
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import BinaryIO, Protocol, cast

from oncall.core.errors import Unreadable

# Files compressed with zstd. Python reads them itself since 3.14, else by package `zstandard`,
# which is optional: few logs are kept so, and the program `zstd` is no part of every host.

ZSTD = b"\x28\xb5\x2f\xfd"
_ZSTD_MEMORY_BYTES = 1 << 27  # memory that a file can ask for: `zstd` itself allows no more


def _zstd_opened(file: BinaryIO) -> BinaryIO:
    """What a compressed file unpacks to, as a stream. Raises Unreadable where nothing can unpack
    it."""
    return cast(BinaryIO, _zstd_reader()(file))


def _zstd_errors() -> tuple[type[Exception], ...]:
    """What damaged data raise; nothing where nothing here can unpack them."""
    for name in ("compression.zstd", "zstandard"):
        try:
            return (import_module(name).ZstdError,)
        except ImportError:
            continue
    return ()


def _zstd_reader() -> Callable[[BinaryIO], object]:
    try:
        return cast(Callable[[BinaryIO], object], import_module("compression.zstd").ZstdFile)
    except ImportError:
        pass
    try:
        decompressor = import_module("zstandard").ZstdDecompressor
    except ImportError as error:
        raise Unreadable(
            "compressed with zstd: `pip install 'oncall-console[zstd]'` reads it, "
            "or `zstd -d` unpacks it"
        ) from error
    unpack = decompressor(max_window_size=_ZSTD_MEMORY_BYTES)
    return lambda file: unpack.stream_reader(file, read_across_frames=True)


LONGEST_MAGIC = 6
_XZ_MEMORY_BYTES = 1 << 27  # that a file can ask for: `xz -9` needs 65 MiB


class Readable(Protocol):
    """Gives up to `count` bytes, none at the end."""

    def read(self, count: int, /) -> bytes:
        """The next bytes."""


@dataclass(frozen=True)
class Packing:
    """How files that begin with `magic` are read, and what damage in them raises. Without any
    `errors` nothing here reads them, and `opened` raises Unreadable, which says what to do.
    `opened` takes what is called where bytes were read and none were given."""

    magic: bytes
    opened: Callable[[BinaryIO, Callable[[], None]], Readable]
    errors: Callable[[], tuple[type[Exception], ...]]


def packing(start: bytes) -> Packing | None:
    """How a file that begins so is packed; None if its bytes are its content."""
    return next((one for one in _PACKINGS if start.startswith(one.magic)), None)


class _Member(Protocol):
    """What the libraries of Python unpack one compressed stream with."""

    @property
    def eof(self) -> bool:
        """Whether its end was met."""

    @property
    def unused_data(self) -> bytes:
        """What follows its end."""

    @property
    def needs_input(self) -> bool:
        """Whether nothing can be unpacked without more data."""

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        """What the data unpacks to, as far as there is room."""


class _Gzip:
    """One member of a gzipped file, as the other libraries unpack theirs."""

    def __init__(self) -> None:
        self._one = zlib.decompressobj(wbits=31)

    @property
    def eof(self) -> bool:
        return self._one.eof

    @property
    def unused_data(self) -> bytes:
        return self._one.unused_data

    @property
    def needs_input(self) -> bool:
        return not self._one.unconsumed_tail

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._one.decompress(self._one.unconsumed_tail + data, max_length)


class _Members:
    """A file of compressed members, one after another, as `cat a.gz b.gz` makes it."""

    def __init__(
        self,
        file: BinaryIO,
        magic: bytes,
        member: Callable[[], _Member],
        on_nothing: Callable[[], None],
    ) -> None:
        self._file, self._magic, self._member = file, magic, member
        self._on_nothing = on_nothing
        self._one = member()

    def read(self, count: int) -> bytes:
        """Up to `count` bytes. Raises EOFError where the file ends within a member."""
        while True:
            data = b""
            if self._one.eof:
                data = self._one.unused_data or self._file.read(count)
                data += self._file.read(len(self._magic)) if len(data) < len(self._magic) else b""
                if not data.startswith(self._magic):
                    return b""
                self._one = self._member()
            elif self._one.needs_input and not (data := self._file.read(max(1, count // 8))):
                raise EOFError("it ends before its last block")
            if unpacked := self._one.decompress(data, count):
                return unpacked
            self._on_nothing()  # empty members, one after another, give nothing to count


class _Utf16:
    """Text in UTF-16 as UTF-8, which all importers read."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._decoder = codecs.getincrementaldecoder("utf-16")(errors="replace")

    def read(self, count: int) -> bytes:
        """Up to `count` characters."""
        while data := self._file.read(count):
            if text := self._decoder.decode(data):
                return text.encode()
        return self._decoder.decode(b"", final=True).encode()


def _compressed(magic: bytes, member: Callable[[], _Member], *errors: type[Exception]) -> Packing:
    return Packing(
        magic,
        lambda file, on_nothing: _Members(file, magic, member, on_nothing),
        lambda: (EOFError, *errors),
    )


_PACKINGS = (
    _compressed(b"\x1f\x8b", _Gzip, zlib.error),
    _compressed(b"BZh", bz2.BZ2Decompressor, OSError, ValueError),
    _compressed(
        b"\xfd7zXZ\0",
        lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY_BYTES),
        lzma.LZMAError,
    ),
    Packing(ZSTD, lambda file, _: _zstd_opened(file), _zstd_errors),
    Packing(codecs.BOM_UTF16_LE, lambda file, _: _Utf16(file), lambda: (UnicodeError,)),
    Packing(codecs.BOM_UTF16_BE, lambda file, _: _Utf16(file), lambda: (UnicodeError,)),
)
