"""Files compressed with zstd. Python reads them itself since 3.14, else by package `zstandard`,
which is optional: few logs are kept so, and the program `zstd` is no part of every host."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import BinaryIO, cast

from oncall.core.errors import Unreadable

ZSTD = b"\x28\xb5\x2f\xfd"
_LARGEST_WINDOW_BYTES = 1 << 27  # memory that a file can ask for: `zstd` itself allows no more


def opened(file: BinaryIO) -> BinaryIO:
    """What a compressed file unpacks to, as a stream. Raises Unreadable where nothing can unpack
    it."""
    return cast(BinaryIO, _reader()(file))


def errors() -> tuple[type[Exception], ...]:
    """What damaged data raise; nothing where nothing here can unpack them."""
    for name in ("compression.zstd", "zstandard"):
        try:
            return (import_module(name).ZstdError,)
        except ImportError:
            continue
    return ()


def _reader() -> Callable[[BinaryIO], object]:
    try:
        return cast(Callable[[BinaryIO], object], import_module("compression.zstd").ZstdFile)
    except ImportError:
        pass
    try:
        decompressor = import_module("zstandard").ZstdDecompressor
    except ImportError as error:
        raise Unreadable(
            "compressed with zstd: `pip install 'oncall[zstd]'` reads it, or `zstd -d` unpacks it"
        ) from error
    unpack = decompressor(max_window_size=_LARGEST_WINDOW_BYTES)
    return lambda file: unpack.stream_reader(file, read_across_frames=True)
