"""Fold and expand sets of ranks and host names: `0-2,4` and `gpu[017-020]`.

Folding is how failures are shown, so it is as important as expanding. Zero padding is kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import product
from math import prod

from oncall.core.errors import UsageError

# Numbers of at most 18 digits: what is longer is a part of a name, or a slip.
_SPAN = re.compile(r"\s*([0-9]{1,18})\s*(?:-\s*([0-9]{1,18})\s*)?")
_LAST_NUMBER = re.compile(r"(.*?)([0-9]{1,18})([^0-9]*)", re.DOTALL)
_MOST_RANKS = 1_000_000
_MOST_HOSTS = 65_536
_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_COMMA = re.compile(r",(?![^\[]*\])")


def _spans(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Sorted distinct numbers as inclusive runs."""
    spans: list[tuple[int, int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1] = (spans[-1][0], number)
        else:
            spans.append((number, number))
    return spans


def _write_spans(spans: Iterable[tuple[int, int]], width: int = 0) -> str:
    return ",".join(
        f"{low:0{width}d}" if low == high else f"{low:0{width}d}-{high:0{width}d}"
        for low, high in spans
    )


def fold_ranks(ranks: Iterable[int | None]) -> str:
    """Ranks as the shortest list of spans: [0, 1, 2, 4] -> `0-2,4`; nothing -> ``.

    A rank that evidence does not know is left out.
    """
    return _write_spans(_spans(sorted({rank for rank in ranks if rank is not None})))


def named_ranks(ranks: Iterable[int | None]) -> str:
    """`rank 3`, `ranks 0-7`."""
    folded = fold_ranks(ranks)
    return f"rank {folded}" if folded.isdecimal() else f"ranks {folded}"


def expand_ranks(text: str) -> tuple[int, ...]:
    """The ranks that `0-2,4` names, in the order written.

    Raises UsageError if a part is neither a number nor a span, or names absurdly many.
    """
    ranks: list[int] = []
    for part in text.split(","):
        match = _SPAN.fullmatch(part)
        if not match:
            raise UsageError(f"`{text}` is not a list of ranks such as 0-2,4 (at `{part.strip()}`)")
        low, high = int(match[1]), int(match[2] or match[1])
        if high < low:
            raise UsageError(f"`{part.strip()}` runs backwards; write {high}-{low}")
        if len(ranks) + high - low >= _MOST_RANKS:
            raise UsageError(f"`{part.strip()}` makes more than {_MOST_RANKS:,} ranks")
        ranks.extend(range(low, high + 1))
    return tuple(ranks)


def fold_hosts(hosts: Iterable[str]) -> str:
    """Host names folded on their last number: gpu017, gpu018, gpu020 -> `gpu[017-018,020]`."""
    groups: dict[tuple[str, str, int], set[int]] = {}
    folded: list[str] = []
    for host in set(hosts):
        match = _LAST_NUMBER.fullmatch(host)
        if not match:
            folded.append(host)
            continue
        before, digits, after = match.groups()
        # Numbers fold together only if padded alike: gpu9 and gpu10, not gpu09 and gpu9.
        width = len(digits) if len(digits) > 1 and digits.startswith("0") else 0
        groups.setdefault((before, after, width), set()).add(int(digits))
    for (before, after, width), numbers in groups.items():
        if width and (unpadded := groups.get((before, after, 0))):
            # 099 and 100 belong together: an unpadded number as long as the padding joins it.
            joined = {number for number in unpadded if len(str(number)) == width}
            numbers |= joined
            unpadded -= joined
    for (before, after, width), numbers in groups.items():
        body = _write_spans(_spans(sorted(numbers)), width)
        if numbers:
            folded.append(before + (body if len(numbers) == 1 else f"[{body}]") + after)
    return ",".join(sorted(folded))


def expand_hosts(text: str) -> tuple[str, ...]:
    """The names that `gpu[001-004,7]-ib[0-1],login` names, in the order written.

    Only what `fold_hosts` writes and its like: groups and exclusions are ClusterShell's. Raises
    UsageError for brackets that hold no numbers, and for absurdly many names.
    """
    hosts: list[str] = []
    for name in filter(None, (part.strip() for part in _COMMA.split(text))):
        pieces = _BRACKETS.split(name)  # outside, inside, outside, ...
        inside = [_numbers(body, name) for body in pieces[1::2]]
        if len(hosts) + prod(map(len, inside)) > _MOST_HOSTS:
            raise UsageError(f"`{text}` names more than {_MOST_HOSTS:,} hosts")
        if any(mark in piece for piece in pieces[::2] for mark in "[]@!&^ "):
            raise UsageError(f"`{name}` is not a node set such as gpu[001-004]")
        for numbers in product(*inside):
            hosts.append("".join(a + b for a, b in zip(pieces[::2], (*numbers, ""), strict=True)))
    return tuple(dict.fromkeys(hosts))


def _numbers(body: str, name: str) -> list[str]:
    """The numbers in brackets as they are padded: `001-003` is 001, 002, 003."""
    numbers: list[str] = []
    for part in body.split(","):
        match = _SPAN.fullmatch(part)
        if not match or int(match[2] or match[1]) - int(match[1]) >= _MOST_HOSTS:
            raise UsageError(f"`{name}`: [{body}] is not a list of numbers such as [001-004,7]")
        width = len(match[1])
        last = int(match[2] or match[1])
        numbers += [f"{number:0{width}d}" for number in range(int(match[1]), last + 1)]
    return numbers


def natural(name: str) -> list[tuple[int, str]]:
    """What sorts `host9` before `host10`."""
    return [
        (int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)
    ]
