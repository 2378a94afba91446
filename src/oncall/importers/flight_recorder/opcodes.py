"""A dump's opcodes read straight into columns, by the C of readers/, which knows those that PyTorch
writes. What it refuses, and where it was not built, the unpickler reads: equally, but slower.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

from oncall.core.errors import OncallError
from oncall.importers.documents import parse_pickle
from oncall.importers.flight_recorder.rows import MOST_FRAMES, Rows
from oncall.native import readers_library

# As readers/flight_recorder.h has them.
_COLUMNS = (
    *("group", "pg_id", "call", "dtype", "collective_seq", "p2p_seq", "op_id", "record_id"),
    *("created_ns", "started_ns", "ended_ns", "timeout_ms", "duration_ms", "input_elements"),
    *("output_elements", "state", "retired", "is_p2p", "frames"),
)
_DURATION, _FRAMES = _COLUMNS.index("duration_ms"), _COLUMNS.index("frames")
_NUMBER_BYTES, _SPAN_BYTES = 8, 8


class _Read(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("entries", "words")),
        *((name, ctypes.c_uint64) for name in ("entry_count", "group_count", "call_count")),
        *((name, ctypes.c_uint64) for name in ("dtype_count", "entries_at")),
    )


class _Frame(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_uint32) for name in ("name_at", "name_length", "file_at")),
        *((name, ctypes.c_uint32) for name in ("file_length", "line_at", "line_length")),
        ("line_number", ctypes.c_int64),
    )


@cache
def _library() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL(str(readers_library()))
    except (OncallError, OSError):  # not built for this machine, or for another C library
        return None
    library.oncall_reader_new.restype = ctypes.c_void_p
    library.oncall_reader_free.argtypes = [ctypes.c_void_p]
    library.oncall_read_dump.argtypes = [
        *(ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint64, ctypes.c_void_p)
    ]
    library.oncall_frames.argtypes = [
        *(ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_uint64)
    ]
    library.oncall_frames.restype = ctypes.c_uint64
    return library


class _Reader:
    """The memory of one thread, which every dump uses anew."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library
        self.handle = ctypes.c_void_p(library.oncall_reader_new())
        self.read = _Read()
        self.frames = (_Frame * MOST_FRAMES)()
        self.data = b""  # of the last dump: what was read points into it

    def __del__(self) -> None:
        self.library.oncall_reader_free(self.handle)


class _OfThread(threading.local):
    """A reader for each thread, none where there is no library."""

    def __init__(self) -> None:
        library = _library()
        self.reader = None if library is None else _Reader(library)


@cache
def _of_thread() -> _OfThread:
    return _OfThread()


def read_opcodes(data: bytes) -> tuple[Any, Rows] | None:
    """All of a dump but its entries, and its entries as columns; None for a dump that is not as
    PyTorch writes it. Raises Unreadable for damage in front of the entries."""
    reader = _of_thread().reader
    if reader is None or not reader.handle:
        return None
    reader.data = data
    read = reader.read
    status = reader.library.oncall_read_dump(reader.handle, data, len(data), ctypes.byref(read))
    if status or not read.entry_count:
        return None
    head = parse_pickle(data[: read.entries_at] + b"u.")
    matrix = np.frombuffer(
        ctypes.string_at(read.entries, read.entry_count * len(_COLUMNS) * _NUMBER_BYTES),
        dtype=np.int64,
    )
    columns = matrix.reshape(-1, len(_COLUMNS)).T.copy()
    named: dict[str, Any] = dict(zip(_COLUMNS, columns, strict=True))
    named["duration_ms"] = columns[_DURATION].view(np.float64)
    named["frames"] = lambda row: _frames(reader, data, int(columns[_FRAMES, row]))
    words = _words(read, data)
    names = [next(words) for _ in range(2 * read.group_count)]
    calls = [next(words) for _ in range(read.call_count)]
    pairs = list(zip(names[::2], names[1::2], strict=True))
    return head, Rows(pairs, calls, list(words), **named)


def _words(read: _Read, data: bytes) -> Iterator[str]:
    count = 2 * read.group_count + read.call_count + read.dtype_count
    spans = np.frombuffer(ctypes.string_at(read.words, count * _SPAN_BYTES), dtype=np.uint32)
    for at, length in spans.reshape(-1, 2).tolist():
        yield data[at : at + length].decode()


def _frames(reader: _Reader, data: bytes, frames: int) -> list[tuple[str, str, str]]:
    if reader.data is not data:
        raise RuntimeError("frames of a dump are asked for after the next one was read")
    to = reader.frames
    count = reader.library.oncall_frames(reader.handle, frames, to, MOST_FRAMES)

    def text(at: int, length: int) -> str:
        return data[at : at + length].decode()

    return [
        (
            text(one.name_at, one.name_length),
            text(one.file_at, one.file_length),
            text(one.line_at, one.line_length) if one.line_length else str(one.line_number),
        )
        for one in to[:count]
    ]
