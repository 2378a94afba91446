"""A waiting graph as lines of text, at most `width` columns wide."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Literal

from oncall.core.printable import clean
from oncall.core.units import format_duration
from oncall.render.text.lines import Line, line, time_axis, wrapped
from oncall.views.network.waiting import Lane, Link, Step, WaitingGraph, chain

_LEAST = 16
_WIDEST_NAME = 28
_MOST_ALONE = 8  # late steps of the chain with a line of their own


def waiting_lines(graph: WaitingGraph, width: int = 80) -> list[Line]:
    """A line a sender, to scale; below, the critical path from its first step to its last."""
    names = [lane_name(lane) for lane in graph.lanes]
    room = min(max(map(len, names), default=0), _WIDEST_NAME) + 3
    columns = max(width - room, _LEAST)
    first, last = graph.shown_ns
    lines = [
        *wrapped(title(graph), width),
        f"{format_duration((last - first) / columns)} per column",
    ]
    for lane, name in zip(graph.lanes, names, strict=True):
        cells = "".join(run.text for run in lane_runs(graph, lane, columns))
        begin = f"{'▶' if lane.blamed else ' '} {name[:_WIDEST_NAME]:<{room - 2}}"
        lines.append(f"{begin}{cells}".rstrip())
    lines.append(" " * room + axis(graph, columns))
    lines += [part for text in legend(graph) for part in wrapped(text, width)]
    lines += ["", "Critical path; each step waits for the one above it:"]
    lines += chain_lines(graph, width)
    drawn = [line(text) for text in lines]
    return drawn


def title(graph: WaitingGraph) -> str:
    """What it is, how long it took, what its path lost."""
    of = graph.collective
    took = format_duration(of.took_ns)
    took = took if of.over else f"not finished after {took}"
    lost = (
        f"its critical path lost {format_duration(of.lost_ns)} ({of.lost_ns / of.took_ns:.0%})"
        if of.lost_ns > 0 and of.took_ns
        else "no step of its critical path was late"
    )
    return f"{clean(of.name[:1].upper() + of.name[1:])}: {took}, {lost}".replace("%)", " %)")


def lane_name(lane: Lane) -> str:
    """`rank 13 host13`."""
    return f"rank {lane.rank} {lane.node}".rstrip()


def axis(graph: WaitingGraph, columns: int) -> str:
    """Time since the collective began, at the left, in the middle, at the right."""
    first, last = (at - graph.collective.started_ns for at in graph.shown_ns)
    return time_axis(first, last, columns)


def legend(graph: WaitingGraph) -> Iterator[str]:
    """What the lines mean, of those that are there."""
    steps = [step for lane in graph.lanes for step in lane.steps]
    parts = ["4━━ step 4, on the critical path"]
    if not all(step.critical for step in steps):
        parts.append("4── off it")
    if any(step.late and step.critical for step in steps):
        parts.append("█ over the expected time")
    if any(step.late and not step.critical for step in steps):
        parts.append("▒ the same off the path")
    if any(step.waited_for == "data" for step in steps):
        parts.append("· waits for the data to send on")
    yield "; ".join(parts)
    if graph.left_out:
        yield f"{graph.left_out:,} more ranks not shown"
    if graph.before or graph.after:
        parts = [f"{graph.before:,} before"] * bool(graph.before)
        parts += [f"{graph.after:,} after"] * bool(graph.after)
        yield f"steps of the path not shown: {', '.join(parts)}"


# ----------------------------------------------------------------------- chain


def chain_lines(graph: WaitingGraph, width: int) -> list[str]:
    """The critical path: late steps alone, others folded."""
    links = chain(graph.path, _MOST_ALONE)
    phrases = [(steps_phrase(link), way_phrase(link), times_phrase(link)) for link in links]
    wide = [max(len(row[place]) for row in phrases) for place in (0, 1)]
    lines: list[str] = []
    for link, (name, way, times) in zip(links, phrases, strict=True):
        reported_link = f"{'▶' if link.late else ' '} {name:<{wide[0]}}  {way:<{wide[1]}}  {times}"
        lines += wrapped(reported_link, width)
    return lines


def steps_phrase(link: Link) -> str:
    """`step 4`, `steps 5-7`."""
    first, last = link.steps[0].step, link.steps[-1].step
    return f"step {first}" if len(link.steps) == 1 else f"steps {first}-{last}"


def way_phrase(link: Link) -> str:
    """`13→14 (host13→host14)`; of several steps the first sender and the last receiver."""
    first, last = link.steps[0], link.steps[-1]
    between = "→…→" if len(link.steps) > 1 and first.pair != last.pair else "→"
    nodes = f" ({first.src_node}{between}{last.dst_node})" if first.src_node else ""
    return f"{first.src}{between}{last.dst}{nodes}"


def times_phrase(link: Link) -> str:
    """`9.24 ms, 4.1 ms over expected`, and for whom it waited before."""
    first = link.steps[0]
    still = "" if link.steps[-1].over else ", not finished"
    lost = sum(max(step.excess_ns, 0.0) for step in link.steps if step.late)
    beyond = f", {format_duration(lost)} over expected" if lost else ", as expected"
    if first.expected_ns is None and not lost:
        beyond = ""
    return f"{format_duration(link.took_ns)}{beyond}{still}"


def wait_phrase(step: Step) -> str:
    """What a step waited for before it began."""
    if step.after is None:
        return "waited for no other step"
    src, dst, number = step.after
    gap = f", began {format_duration(step.gap_ns)} later" if step.gap_ns else ""
    own = " (its sender's)" if step.waited_for == "previous" else ""
    return f"waited for step {number} from {src} to {dst}{own}{gap}"


Look = Literal["critical", "other", "beyond", "waits", "idle"]
Cell = tuple[str, Look, Step | None]


@dataclass(frozen=True)
class Run:
    """Columns of one look and one step; of none where nothing was sent."""

    text: str
    look: Look
    step: Step | None = None


def lane_runs(graph: WaitingGraph, lane: Lane, columns: int) -> list[Run]:
    """A lane in `columns` cells. A step begins with its number; what it takes beyond its expected
    time is filled; dots are time in which it waited for what it sends on."""
    cells: list[Cell] = [(" ", "idle", None)] * columns
    for before, step in pairwise(lane.steps):
        if step.waited_for == "data":
            first, last = (column(graph, at, columns) for at in (before.ended_ns, step.started_ns))
            cells[first:last] = [("·", "waits", None)] * max(last - first, 0)
    for step in sorted(lane.steps, key=lambda one: (one.critical, one.late)):
        _put(cells, graph, step)
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


def _put(cells: list[Cell], graph: WaitingGraph, step: Step) -> None:
    """A step over whatever is there, at least a cell wide."""
    columns = len(cells)
    first = min(column(graph, step.started_ns, columns), columns - 1)
    last = max(column(graph, step.ended_ns, columns), first + 1)
    due = last
    if step.late and step.expected_ns is not None:
        due = max(column(graph, step.started_ns + int(step.expected_ns), columns), first)
    line = "━" if step.critical else "─"
    filled = "█" if step.critical else "▒"
    ordinary: Look = "critical" if step.critical else "other"
    for place in range(first, last):
        beyond = place >= due
        cells[place] = (filled, "beyond", step) if beyond else (line, ordinary, step)
    name = str(step.step)
    if step.started_ns >= graph.shown_ns[0] and len(name) < last - first:
        for place, digit in enumerate(name, first):
            cells[place] = (digit, cells[place][1], step)
