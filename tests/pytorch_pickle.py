"""Pickles as PyTorch's own pickler writes them (torch/csrc/jit/serialization/pickler.cpp): protocol
2, texts memoised, and of containers only those that occur more than once, when they are full."""

from __future__ import annotations

import pickle
import struct
from collections import Counter
from collections.abc import Iterator
from typing import Any


def pytorch_pickle(value: Any) -> bytes:
    """The pickle of plain containers, texts, numbers and None."""
    seen: Counter[int] = Counter()
    _count(value, seen)
    return b"\x80\x02" + b"".join(_opcodes(value, {}, seen)) + b"."


def _count(value: Any, seen: Counter[int]) -> None:
    if isinstance(value, dict | list | tuple):
        seen[id(value)] += 1
        if seen[id(value)] == 1:
            for one in (*value, *value.values()) if isinstance(value, dict) else value:
                _count(one, seen)


def _opcodes(value: Any, memo: dict[str | int, int], seen: Counter[int]) -> Iterator[bytes]:
    key = value if isinstance(value, str) else id(value) if seen[id(value)] > 1 else None
    if key in memo:
        yield _numbered(b"hj", memo[key])
        return
    match value:
        case str():
            data = value.encode("utf-8", "surrogatepass")
            yield struct.pack("<cI", b"X", len(data)) + data
        case list():
            yield b"]("
            for one in value:
                yield from _opcodes(one, memo, seen)
            yield b"e"
        case tuple():
            for one in value:
                yield from _opcodes(one, memo, seen)
            yield b")\x85\x86\x87"[len(value) : len(value) + 1]
        case dict():
            yield b"}("
            for name, one in value.items():
                yield from _opcodes(name, memo, seen)
                yield from _opcodes(one, memo, seen)
            yield b"u"
        case bool() | None:
            yield b"N" if value is None else b"\x88" if value else b"\x89"
        case float():
            yield struct.pack(">cd", b"G", value)
        case _:
            yield _number(value)
    if key is not None:
        memo[key] = len(memo)
        yield _numbered(b"qr", memo[key])


def _numbered(short_and_long: bytes, code: int) -> bytes:
    short, long = short_and_long
    return struct.pack("<BB", short, code) if code < 256 else struct.pack("<BI", long, code)


def _number(value: int) -> bytes:
    if 0 <= value < 2**8:
        return struct.pack("<cB", b"K", value)
    if 0 <= value < 2**16:
        return struct.pack("<cH", b"M", value)
    if -(2**31) <= value < 2**31:
        return struct.pack("<ci", b"J", value)
    if -(2**63) <= value < 2**63:
        return struct.pack("<cBq", b"\x8a", 8, value)
    return pickle.dumps(value, protocol=2)[2:-1]  # PyTorch has none; a fuzzer has
