"""Fold and expand sets of ranks and host names: `0-2,4` and `gpu[017-020]`.

Folding is how failures are shown, so it is as important as expanding. Zero padding is kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from oncall.errors import UsageError

_SPAN = re.compile(r"^\s*(\d+)\s*(?:-\s*(\d+)\s*)?$")
_LAST_NUMBER = re.compile(r"^(.*?)(\d+)(\D*)$", re.DOTALL)


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


def fold_ranks(ranks: Iterable[int]) -> str:
    """Ranks as the shortest list of spans: [0, 1, 2, 4] -> `0-2,4`; nothing -> ``."""
    return _write_spans(_spans(sorted(set(ranks))))


def expand_ranks(text: str) -> tuple[int, ...]:
    """The ranks that `0-2,4` names, in the order written.

    Raises UsageError if a part is neither a number nor a span.
    """
    ranks: list[int] = []
    for part in text.split(","):
        match = _SPAN.match(part)
        if not match:
            raise UsageError(f"`{text}` is not a list of ranks such as 0-2,4 (at `{part.strip()}`)")
        low, high = int(match[1]), int(match[2] or match[1])
        if high < low:
            raise UsageError(f"`{part.strip()}` runs backwards; write {high}-{low}")
        ranks.extend(range(low, high + 1))
    return tuple(ranks)


def fold_hosts(hosts: Iterable[str]) -> str:
    """Host names folded on their last number: gpu017, gpu018, gpu020 -> `gpu[017-018,020]`."""
    groups: dict[tuple[str, str, int], set[int]] = {}
    plain: list[str] = []
    for host in sorted(set(hosts)):
        match = _LAST_NUMBER.match(host)
        if match:
            # Numbers fold together only if padded alike: gpu9 and gpu10, not gpu09 and gpu9.
            width = len(match[2]) if match[2].startswith("0") else 0
            groups.setdefault((match[1], match[3], width), set()).add(int(match[2]))
        else:
            plain.append(host)
    for (before, after, width), numbers in list(groups.items()):
        wider = (before, after, 0)
        # 099 and 100 belong together: an unpadded number as long as the padding joins its group.
        if width and wider in groups:
            joined = {n for n in groups[wider] if len(str(n)) == width}
            numbers |= joined
            groups[wider] -= joined
    folded = list(plain)
    for (before, after, width), numbers in groups.items():
        if not numbers:
            continue
        spans = _spans(sorted(numbers))
        body = _write_spans(spans, width)
        single = len(numbers) == 1
        folded.append(f"{before}{body}{after}" if single else f"{before}[{body}]{after}")
    return ",".join(sorted(folded))
