"""Inputs from seeds: sound bytes of a corpus, changed in ways that readers meet and attackers try.

The same seed makes the same input, so a number is all that a report needs.
"""

from __future__ import annotations

import json
import random
import reprlib
import struct
from collections.abc import Callable, Sequence
from typing import Any

MOST_BYTES = 1 << 20  # of an input; what grows beyond is cut

_DEEP = 900  # levels of nesting; Python's own limit is 1000
_NUMBERS = (0, 1, 2, 7, 127, 128, 255, 256, 4096, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 1)
_LARGE = (*_NUMBERS, 2**53, 2**63 - 1, 2**63, 2**64 - 1, -1, -(2**31), -(2**63))
_TEXTS = (
    *("", "nan", "inf", "-inf", "1e999", "null", "0x", "../..", "[/]", "[red]", "{{", "}}"),
    *("\x00", "\x1b[2J", "\r\n", "\u2028", "\u202e", "\ufeff", "é", "😀", "\ud800", "a" * 5000),
    *("'; DROP TABLE ops; --", '"', "\\", "%s", "{0}", "gpu[0-9]", "gpu[0-99999999]", "9" * 5000),
    *("[" * 3000, "1e400"),
)
_TOKENS = tuple(text.encode("utf-8", "surrogatepass") for text in _TEXTS)


def mutated(corpus: Sequence[bytes], seed: int) -> bytes:
    """One input: a member of the corpus with a few changes; every hundredth is it unchanged."""
    dice = random.Random(seed)
    data = bytearray(dice.choice(corpus)) if corpus else bytearray()
    if dice.randrange(100) == 0:
        return bytes(data)
    for _ in range(dice.choice((1, 1, 1, 2, 2, 3, 5, 12))):
        dice.choice(_CHANGES)(data, dice, corpus)
        del data[MOST_BYTES:]
    return bytes(data)


def mutated_json(corpus: Sequence[Any], seed: int) -> bytes:
    """JSON whose values were replaced, dropped, doubled or nested; sometimes broken as bytes."""
    dice = random.Random(seed)
    value = json.loads(json.dumps(dice.choice(corpus)))
    for _ in range(dice.choice((1, 1, 2, 3, 6))):
        value = _changed(value, dice)
    try:
        written = json.dumps(value, ensure_ascii=dice.random() < 0.5)
    except RecursionError:  # nested again and again, and deeper than Python can write
        written = "[" * _DEEP
    text = written.encode("utf-8", "surrogatepass")
    return mutated([text], dice.randrange(2**32)) if dice.random() < 0.2 else text


def _changed(value: Any, dice: random.Random, depth: int = 0) -> Any:
    """The same with one part changed, anywhere in it."""
    if isinstance(value, dict) and value and dice.random() < 0.85:
        key = dice.choice(list(value))
        match dice.randrange(12):
            case 0:
                return {name: each for name, each in value.items() if name != key}
            case 1:
                return value | {dice.choice(_TEXTS) or "x": value[key]}
            case _:
                return value | {key: _changed(value[key], dice, depth + 1)}
    if isinstance(value, list) and value and dice.random() < 0.85:
        at = dice.randrange(len(value))
        match dice.randrange(12):
            case 0:
                return value[:at] + value[at + 1 :]
            case 1:
                return value + value[: dice.randrange(1, 200)]
            case 2:
                return list(reversed(value))
            case _:
                return [*value[:at], _changed(value[at], dice, depth + 1), *value[at + 1 :]]
    return _any_value(value, dice)


def _any_value(value: Any, dice: random.Random) -> Any:
    match dice.randrange(9):
        case 0:
            return dice.choice(_LARGE)
        case 1:
            return dice.choice(_TEXTS)
        case 2:
            return dice.choice((None, True, False, [], {}, 0.5, -0.0, 1e308, float("nan")))
        case 3:
            return [value] * dice.choice((1, 2, 50))
        case 4:
            return {"x": value}
        case 5:
            return reprlib.repr(value)  # of any depth
        case 6 if isinstance(value, int):
            return value + dice.choice((-1, 1, 10**9, -(10**9)))
        case 7:
            nested: Any = value
            for _ in range(dice.choice((3, 30, _DEEP))):
                nested = [nested]
            return nested
        case _:
            return dice.getrandbits(dice.choice((8, 32, 64, 70)))


# ------------------------------------------------------------------ changes of bytes


def _flip(data: bytearray, dice: random.Random, _: Sequence[bytes]) -> None:
    if data:
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)


def _set(data: bytearray, dice: random.Random, _: Sequence[bytes]) -> None:
    if data:
        data[dice.randrange(len(data))] = dice.randrange(256)


def _cut(data: bytearray, dice: random.Random, _: Sequence[bytes]) -> None:
    del data[dice.randrange(len(data) + 1) :]


def _drop(data: bytearray, dice: random.Random, _: Sequence[bytes]) -> None:
    at = dice.randrange(len(data) + 1)
    del data[at : at + dice.choice((1, 2, 4, 8, 64, 1000))]


def _repeat(data: bytearray, dice: random.Random, _: Sequence[bytes]) -> None:
    at = dice.randrange(len(data) + 1)
    piece = data[at : at + dice.choice((1, 4, 16, 100, 1000))]
    data[at:at] = piece * dice.choice((1, 2, 10, 100))


def _number(data: bytearray, dice: random.Random, _: Sequence[bytes]) -> None:
    """An edge of the number range, where a field may stand."""
    form, bits = dice.choice((("<H", 16), ("<I", 32), ("<Q", 64), (">I", 32), (">Q", 64)))
    size = struct.calcsize(form)
    if len(data) >= size:
        # Headers come first and hold what others are measured by.
        reach = len(data) - size + 1
        at = dice.randrange(min(reach, 512)) if dice.random() < 0.5 else dice.randrange(reach)
        struct.pack_into(form, data, at, dice.choice(_LARGE) % 2**bits)


def _token(data: bytearray, dice: random.Random, _: Sequence[bytes]) -> None:
    at = dice.randrange(len(data) + 1)
    data[at:at] = dice.choice(_TOKENS)


def _digits(data: bytearray, dice: random.Random, _: Sequence[bytes]) -> None:
    """Another number where one is written out."""
    places = [at for at, byte in enumerate(data[:65536]) if 48 <= byte <= 57]
    if places:
        at = end = dice.choice(places)
        while end < len(data) and 48 <= data[end] <= 57:
            end += 1
        data[at:end] = str(dice.choice(_LARGE)).encode()


def _splice(data: bytearray, dice: random.Random, corpus: Sequence[bytes]) -> None:
    """A piece of another member."""
    other = dice.choice(corpus) if corpus else b""
    start = dice.randrange(len(other) + 1)
    piece = other[start : start + dice.choice((4, 32, 256, 4096))]
    at = dice.randrange(len(data) + 1)
    data[at : at + dice.choice((0, len(piece)))] = piece


def _lines(data: bytearray, dice: random.Random, _: Sequence[bytes]) -> None:
    """Lines in another order, doubled or gone."""
    lines = bytes(data).split(b"\n")
    at, to = dice.randrange(len(lines)), dice.randrange(len(lines))
    match dice.randrange(3):
        case 0:
            lines.insert(to, lines[at])
        case 1:
            lines[at], lines[to] = lines[to], lines[at]
        case _:
            del lines[at]
    data[:] = b"\n".join(lines)


_CHANGES: tuple[Callable[[bytearray, random.Random, Sequence[bytes]], None], ...] = (
    *(_flip, _set, _cut, _drop, _repeat, _number, _number, _token, _digits, _splice, _lines),
)
