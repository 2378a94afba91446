"""A lane of a timeline in the columns of a terminal: runs of glyphs, each of one box or of none.

A box is a letter, its micro-batch and a line: `F3━━━━━`. On the critical path letters are capitals
and lines are heavy; what is beyond the expected time of a blamed box is solid. So nothing hangs on
colour, and in ASCII alone it reads the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from oncall.views.stages.timeline import COMPUTE, LETTERS, TRANSFERS, Box, Lane, Timeline


@dataclass(frozen=True)
class Glyphs:
    """What lines are drawn with."""

    critical: str
    other: str
    transfer: str
    beyond: str
    going_on: str
    mark: str


GLYPHS = Glyphs(critical="━", other="─", transfer="·", beyond="█", going_on="▶", mark="▶")
PLAIN = Glyphs(critical="=", other="-", transfer=".", beyond="#", going_on=">", mark=">")


@dataclass(frozen=True)
class Run:
    """Neighbouring columns that show the same: `box` is None where nothing is known to run.
    `beyond`: the part past its expected time."""

    text: str
    box: Box | None
    beyond: bool = False


def lane_runs(timeline: Timeline, lane: Lane, columns: int, *, plain: bool = False) -> list[Run]:
    """The lane in exactly `columns` columns. A box shorter than a column has one, unless a box
    that matters more has it; so every box that is blamed or critical is seen."""
    glyphs = PLAIN if plain else GLYPHS
    first, last = timeline.shown_ns
    owner: list[int] = [-1] * columns
    for number in sorted(range(len(lane.boxes)), key=lambda one: _weight(lane.boxes[one])):
        begin, end = _columns(timeline, lane.boxes[number], columns)
        owner[begin:end] = [number] * (end - begin)
    runs: list[Run] = []
    place = 0
    for number, group in groupby(owner):
        width = len(list(group))
        if number < 0:
            runs.append(Run(" " * width, None))
        else:
            box = lane.boxes[number]
            limit = columns
            if box.blamed and box.expected_ns is not None:
                due = box.started_ns + box.expected_ns
                limit = round((due - first) * columns / (last - first))
            elif box.blamed and box.ended_ns is None:
                limit = place + len(label(box, timeline.chunks))
            runs += _box_runs(box, place, width, limit, timeline.chunks, glyphs)
        place += width
    return runs


def column_of(timeline: Timeline, at_ns: int, columns: int) -> int:
    """The column that an instant falls on, within the picture."""
    first, last = timeline.shown_ns
    return min(max((at_ns - first) * columns // (last - first), 0), columns - 1)


def label(box: Box, chunks: int) -> str:
    """`F3`, of several chunks `F3.1`; small where it is not on the critical path."""
    letter = LETTERS.get(box.task, LETTERS["other"])
    number = "" if box.micro_batch is None or box.task not in COMPUTE else str(box.micro_batch)
    chunk = f".{box.chunk}" if chunks > 1 and number else ""
    return (letter if box.critical or box.task not in COMPUTE else letter.lower()) + number + chunk


def _columns(timeline: Timeline, box: Box, columns: int) -> tuple[int, int]:
    """The columns of a box, at least one; boxes that follow each other share none."""
    first, last = timeline.shown_ns
    end_ns = last if box.ended_ns is None else box.ended_ns
    begin = round((box.started_ns - first) * columns / (last - first))
    end = round((end_ns - first) * columns / (last - first))
    begin = min(begin, columns - 1)
    return begin, min(max(end, begin + 1), columns)


def _weight(box: Box) -> tuple[bool, bool, bool, bool, int]:
    """The later in this order, the nearer to the eye."""
    moment = box.started_ns == box.ended_ns
    return box.blamed, box.critical, not moment, box.task not in TRANSFERS, -(box.duration_ns or 0)


def _box_runs(
    box: Box, place: int, width: int, limit: int, chunks: int, glyphs: Glyphs
) -> Iterator[Run]:
    if box.task in TRANSFERS:
        yield Run((glyphs.beyond if box.blamed else glyphs.transfer) * width, box, box.blamed)
        return
    within = min(max(limit - place, 1), width)
    # A number cut short would be another micro-batch; the chunk can be left out.
    choices = (label(box, chunks), label(box, 1), label(box, 1)[0])
    text = next(one for one in choices if len(one) <= within)
    fill = glyphs.critical if box.critical else glyphs.other
    line = text + fill * (within - len(text))
    if box.ended_ns is None and within == width > 1:
        line = line[:-1] + glyphs.going_on
    yield Run(line, box)
    if within < width:
        beyond = glyphs.beyond * (width - within)
        if box.ended_ns is None:
            beyond = beyond[:-1] + glyphs.going_on
        yield Run(beyond, box, beyond=True)
