"""One run against another, as a table at 80 columns or JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from oncall.core.printable import harmless
from oncall.core.units import counted, format_duration
from oncall.views.comparison import Change, Comparison, Run

_MOST = 20  # rows of each table; JSON has all
_WIDTH = 80
_NAME = 32


def to_json(found: Comparison) -> str:
    """Everything, for programs."""
    return json.dumps({"schema": 1, **asdict(found)}, indent=2) + "\n"


def to_text(found: Comparison, base: Run, other: Run, names: tuple[str, str]) -> str:
    """What differs first; measures without a difference are counted."""
    return "".join(f"{harmless(line).rstrip()}\n" for line in _lines(found, base, other, names))


def _lines(found: Comparison, base: Run, other: Run, names: tuple[str, str]) -> Iterator[str]:
    yield f"base   {names[0]}: {counted(base.ranks, 'rank')}"
    yield f"other  {names[1]}: {counted(other.ranks, 'rank')}"
    yield ""
    differ = [one for one in found.changes if one.certain]
    if not found.changes:
        yield "The two runs have no measure in common."
    elif not differ and not found.ranks:
        yield f"No difference beyond noise in {counted(len(found.changes), 'measure')}:"
        yield from _table(found.changes[:3], "noise")
    yield from _table(differ[:_MOST], "noise")
    yield from _table(found.ranks[:_MOST], "all ranks")
    if differ and (alike := len(found.changes) - len(differ)):
        yield f"{counted(alike, 'other measure')} did not change beyond noise"
    if found.facts:
        yield from ("", "What the runs differ in:")
        for name, before, since in found.facts:
            yield f"  {name}: {before or 'not recorded'} -> {since or 'not recorded'}"[:_WIDTH]


def _table(changes: Sequence[Change], beside: str) -> Iterator[str]:
    """`beside`: what is in brackets."""
    if changes:
        yield f"{'':<{_NAME}} {'base':>9} {'other':>9}  change ({beside})"
    for one in changes:
        noise = f"({_percent(one.low)} to {_percent(one.high)})"
        times = f"{format_duration(one.base_ns):>9} {format_duration(one.other_ns):>9}"
        yield f"{one.name[:_NAME]:<{_NAME}} {times}  {_percent(one.ratio)} {noise}"


def _percent(ratio: float) -> str:
    return f"{round(100 * (ratio - 1)):+,d} %"
