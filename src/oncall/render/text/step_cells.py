"""One sender's steps in the columns of a terminal: runs of text, each of one look."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Literal

from oncall.views.network.waiting import Lane, Step, WaitingGraph

Look = Literal["critical", "other", "beyond", "waits", "idle"]
Cell = tuple[str, Look, Step | None]


@dataclass(frozen=True)
class Glyphs:
    """What a picture is made of."""

    critical: str = "━"
    other: str = "─"
    beyond: str = "█"
    beyond_other: str = "▒"
    waits: str = "·"
    mark: str = "▶"
    down: str = "↓"
    arrow: str = "→"
    over: str = "×"


GLYPHS = Glyphs()
PLAIN = Glyphs("=", "-", "#", "%", ".", ">", "v", "->", "x")


@dataclass(frozen=True)
class Run:
    """Columns of one look and one step; of none where nothing was sent."""

    text: str
    look: Look
    step: Step | None = None


def lane_runs(graph: WaitingGraph, lane: Lane, columns: int, *, plain: bool = False) -> list[Run]:
    """A lane in `columns` cells. A step begins with its number; what it takes beyond its expected
    time is filled; dots are time in which it waited for what it sends on."""
    glyphs = PLAIN if plain else GLYPHS
    cells: list[Cell] = [(" ", "idle", None)] * columns
    for before, step in pairwise(lane.steps):
        if step.waited_for == "data":
            first, last = (column(graph, at, columns) for at in (before.ended_ns, step.started_ns))
            cells[first:last] = [(glyphs.waits, "waits", None)] * max(last - first, 0)
    for step in sorted(lane.steps, key=lambda one: (one.critical, one.late)):
        _put(cells, graph, step, glyphs)
    return [
        Run("".join(cell[0] for cell in group), look, step)
        for (look, step), group in (
            (key, list(cells)) for key, cells in groupby(cells, lambda cell: cell[1:])
        )
    ]


def column(graph: WaitingGraph, at_ns: int, columns: int) -> int:
    """The cell in which an instant lies; `columns` for the end of what is shown, and after it."""
    first, last = graph.shown_ns
    return min(max((at_ns - first) * columns // max(last - first, 1), 0), columns)


def _put(cells: list[Cell], graph: WaitingGraph, step: Step, glyphs: Glyphs) -> None:
    """A step over whatever is there, at least a cell wide."""
    columns = len(cells)
    first = min(column(graph, step.started_ns, columns), columns - 1)
    last = max(column(graph, step.ended_ns, columns), first + 1)
    due = last
    if step.late and step.expected_ns is not None:
        due = max(column(graph, step.started_ns + int(step.expected_ns), columns), first)
    line = glyphs.critical if step.critical else glyphs.other
    filled = glyphs.beyond if step.critical else glyphs.beyond_other
    ordinary: Look = "critical" if step.critical else "other"
    for place in range(first, last):
        beyond = place >= due
        cells[place] = (filled, "beyond", step) if beyond else (line, ordinary, step)
    name = str(step.step)
    if step.started_ns >= graph.shown_ns[0] and len(name) < last - first:
        for place, digit in enumerate(name, first):
            cells[place] = (digit, cells[place][1], step)
