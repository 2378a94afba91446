"""Small files of procfs, sysfs and cgroupfs: what they say, or None where it cannot be had.

They vanish with their process or device, hold what no document promised, or refuse to be read;
a collector asks again at its next turn.
"""

from __future__ import annotations

import os
from collections.abc import Container
from pathlib import Path

_PIECE_BYTES = 1 << 14
_MOST_DIGITS = 20
_TOO_MUCH = 1 << 63
_MOST_NUMBERS = 1 << 16  # CPUs of a node: a damaged file must not fill the memory


def read_text(path: Path) -> str | None:
    """What a file says, without white space around it."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # a third of what a file object costs
    except (OSError, ValueError):  # a name with a NUL in it is a ValueError
        return None
    try:
        pieces = list(iter(lambda: os.read(fd, _PIECE_BYTES), b""))
    except OSError:
        return None
    finally:
        os.close(fd)
    return b"".join(pieces).decode("utf-8", "replace").strip()


def read_number(path: Path) -> int | None:
    """The whole number that a file holds."""
    return whole_number(read_text(path))


def whole_number(text: str | None) -> int | None:
    """A number as the kernel writes it; None for anything else, and beyond 64 bits."""
    if not text or len(text) > _MOST_DIGITS or not text.isascii():
        return None
    return stored(int(text)) if text.removeprefix("-").isdecimal() else None


def stored(number: int | None, times: int = 1) -> int | None:
    """A number in another unit, `times` as small; None where no column could hold it: garbage."""
    if number is None or abs(number * times) >= _TOO_MUCH:
        return None
    return number * times


def read_counts(path: Path) -> dict[str, int]:
    """The counts in a file; none where it cannot be read."""
    return counts_of(read_text(path))


def counts_of(text: str | None, names: Container[str] | None = None) -> dict[str, int]:
    """Lines such as `oom_kill 3` or `MemFree:  17 kB` by their first word, without its colon;
    lines that are no such count are left out, and those not among `names`."""
    counts = {}
    for line in (text or "").splitlines():
        name, *rest = line.split(maxsplit=2)[:2] or [""]
        name = name.rstrip(":")
        is_wanted = rest and (names is None or name in names)
        if is_wanted and (number := whole_number(rest[0])) is not None:
            counts[name] = number
    return counts


def read_list(text: str | None) -> frozenset[int]:
    """The numbers of a list such as `0-3,8,10-11`; none where it is empty or damaged."""
    numbers: set[int] = set()
    for part in (text or "").split(","):
        first, _, last = part.strip().partition("-")
        low, high = whole_number(first), whole_number(last or first)
        if low is None or high is None or not 0 <= low <= high < _MOST_NUMBERS:
            return frozenset()
        numbers.update(range(low, high + 1))
    return frozenset(numbers)
