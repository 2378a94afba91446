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
from oncall.importers.flight_recorder.rows import Array, Rows
from oncall.native import readers_library

# As readers/flight_recorder.h has them.
_COLUMNS = (
    *("group", "pg_id", "call", "dtype", "collective_seq", "p2p_seq", "op_id", "record_id"),
    *("created_ns", "started_ns", "ended_ns", "timeout_ms", "duration_ms", "input_elements"),
    *("output_elements", "state", "retired", "is_p2p", "stack"),
)
_NUMBERS = np.dtype(np.int64)
_SPANS = np.dtype([("at", np.uint32), ("length", np.uint32)])
_STACKS = np.dtype([("first", np.uint64), ("count", np.uint64)])
_FRAMES = np.dtype([("name", _SPANS), ("file", _SPANS), ("line", _SPANS), ("number", np.int64)])


class _Read(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("entries", "words", "stacks", "frames")),
        *((name, ctypes.c_uint64) for name in ("entry_count", "group_count", "call_count")),
        *((name, ctypes.c_uint64) for name in ("dtype_count", "stack_count", "frame_count")),
        ("entries_at", ctypes.c_uint64),
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
    return library


class _Reader:
    """The memory of one thread, which every dump uses anew."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library
        self.handle = ctypes.c_void_p(library.oncall_reader_new())
        self.read = _Read()

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
    read = reader.read
    status = reader.library.oncall_read_dump(reader.handle, data, len(data), ctypes.byref(read))
    if status or not read.entry_count:
        return None
    head = parse_pickle(data[: read.entries_at] + b"u.")
    matrix = _copied(read.entries, read.entry_count * len(_COLUMNS), _NUMBERS)
    columns = dict(zip(_COLUMNS, matrix.reshape(-1, len(_COLUMNS)).T.copy(), strict=True))
    columns["duration_ms"] = columns["duration_ms"].view(np.float64)
    words = _words(read, data)
    names = [next(words) for _ in range(2 * read.group_count)]
    calls = [next(words) for _ in range(read.call_count)]
    pairs = list(zip(names[::2], names[1::2], strict=True))
    stacks = _Stacks(
        data,
        _copied(read.stacks, read.stack_count, _STACKS),
        _copied(read.frames, read.frame_count, _FRAMES),
    )
    return head, Rows(pairs, calls, list(words), **columns, frames=stacks)


def _copied(place: int | None, count: int, kind: np.dtype[Any]) -> Array:
    """What lies there now, and may lie elsewhere when the next dump is read."""
    content = ctypes.string_at(place, count * kind.itemsize) if place else b""
    return np.frombuffer(content, dtype=kind)


def _words(read: _Read, data: bytes) -> Iterator[str]:
    count = 2 * read.group_count + read.call_count + read.dtype_count
    for at, length in _copied(read.words, count, _SPANS).tolist():
        yield data[at : at + length].decode()


class _Stacks:
    """The frames of a stack, decoded where they are asked for."""

    def __init__(self, data: bytes, stacks: Array, frames: Array) -> None:
        self._data, self._stacks, self._frames = data, stacks, frames

    def __call__(self, stack: int) -> list[tuple[str, str, str]]:
        first, count = self._stacks[stack].tolist()
        return [
            (self._text(name), self._text(file), self._text(line) if line[1] else str(number))
            for name, file, line, number in self._frames[first : first + count].tolist()
        ]

    def _text(self, span: tuple[int, int]) -> str:
        at, length = span
        return self._data[at : at + length].decode()
