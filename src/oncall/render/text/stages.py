"""The timeline of an iteration as lines of text, at most `width` columns wide.

A box is a letter, its micro-batch and a line: `F3━━━━━`. On the critical path letters are capitals
and lines are heavy; what is beyond the expected time of a blamed box is solid. So nothing hangs on
colour.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from oncall.core.nodeset import fold_ranks
from oncall.core.printable import clean
from oncall.core.units import format_duration
from oncall.render.text.lines import Line, line, time_axis, wrapped_line
from oncall.views.stages.timeline import (
    COMPUTE,
    LETTERS,
    MEANINGS,
    TRANSFERS,
    Box,
    Lane,
    Timeline,
    compact,
    idle_share,
)

_IDLE = 6  # columns for the share of time without work
_NODES_FROM = 110  # columns, from which on a lane names its node
_LEAST = 16


def timeline_lines(timeline: Timeline, width: int = 80, most: int = 64) -> list[Line]:
    """A line for each lane, with the time it was idle; above what is drawn, below what it means."""
    shown = compact(timeline, most)
    names = [lane_name(shown, lane, width) for lane in shown.lanes]
    room = max(map(len, names), default=0) + 3
    columns = max(width - room - _IDLE, _LEAST)
    first, last = shown.shown_ns
    lines = [
        title(timeline),
        f"{format_duration((last - first) / columns)} per column; at the right the share of time "
        f"without a task",
    ]
    for lane, name in zip(shown.lanes, names, strict=True):
        mark = "▶" if lane.blamed else " "
        cells = "".join(run.text for run in lane_runs(shown, lane, columns))
        lines.append(f"{mark} {name:<{room - 2}}{cells}{idle_share(shown, lane):>{_IDLE}.0%}")
    lines.append(" " * room + axis(shown, columns))
    lines += legend(shown)
    lines += [f"▶ {what}" for what in blamed_sentences(shown)]
    return [part for text in lines for part in wrapped_line(line(text.rstrip()), width, 2)]


def title(timeline: Timeline) -> str:
    """`Iteration 41, pipeline 0 of 0-1: 2.38 s, baseline 1.92 s (+24 %)`."""
    replicas, last = timeline.replicas, timeline.pipelines - 1
    several = "s" if len(replicas) > 1 else ""
    of = f" of 0-{last}" if len(replicas) <= last else ""
    which = f", pipeline{several} {fold_ranks(replicas)}{of}" if replicas else ""
    what = f"Iteration {timeline.iteration}{which if timeline.pipelines > 1 else ''}"
    taken = timeline.duration_ns
    if timeline.silent_ns is not None:
        still = format_duration(timeline.silent_ns)
        return f"{what}: no progress for {still}{_baseline(timeline, None)}"
    if taken is None:
        since = timeline.shown_ns[1] - timeline.started_ns
        recorded = f"not finished, recorded for {format_duration(since)}"
        return f"{what}: {recorded}{_baseline(timeline, None)}"
    return f"{what}: {format_duration(taken)}{_baseline(timeline, taken)}"


def _baseline(timeline: Timeline, taken: int | None) -> str:
    baseline = timeline.baseline_ns
    if not baseline:
        return ""
    if taken is not None and abs(taken / baseline - 1) < 0.005:
        return ", at the baseline"
    phrase = f", baseline {format_duration(baseline)}"
    return phrase if taken is None else f"{phrase} ({taken / baseline - 1:+.0%})".replace("%", " %")


def lane_name(timeline: Timeline, lane: Lane, width: int) -> str:
    """`stage 2 rank 5`, with the pipeline where several are drawn, with the node where there is
    room."""
    name = lane.title if len(timeline.replicas) < 2 else f"p{lane.replica} {lane.title}"
    return f"{name} {clean(lane.node)}" if lane.node and width >= _NODES_FROM else name


def axis(timeline: Timeline, columns: int) -> str:
    """Time since the iteration began: at the left, in the middle, at the right."""
    first, last = timeline.shown_ns
    return time_axis(0, last - first, columns)


def legend(timeline: Timeline) -> Iterator[str]:
    """What letters and lines mean, of those that are there."""
    tasks = {box.task for box in timeline.boxes()}
    parts = [
        f"{LETTERS[task]} {MEANINGS[task]}"
        for task in LETTERS
        if task in tasks and task not in ("other", "garbage")
    ]
    if tasks & set(TRANSFERS):
        parts.append("· send or receive")
    parts.append("blank: bubble")
    yield "; ".join(parts)
    if timeline.path():
        yield ("F━━ on the critical path, f── off it; the number is the micro-batch")
    if timeline.blamed():
        yield "▶ blamed; █ over the expected time"
    if timeline.left_out:
        yield f"{timeline.left_out} more ranks not shown"
    if timeline.clock_error_ns:
        yield f"clocks of the nodes agree within {format_duration(timeline.clock_error_ns)}"


def blamed_sentences(timeline: Timeline, most: int = 3) -> Iterator[str]:
    """`backward of micro-batch 3 on stage 2, rank 5 (node1): 310 ms, expected 140 ms, no slack`;
    several tasks of a rank in one sentence."""
    blamed = timeline.blamed()
    for number in list(dict.fromkeys(lane for lane, _ in blamed))[:most]:
        lane = timeline.lanes[number]
        boxes = [box for at, box in blamed if at == number]
        worst = max(boxes, key=excess_ns)
        place = "to" if worst.task == "transfer" else "on"
        node = f" ({clean(lane.node)})" if lane.node else ""
        where = f"{place} stage {lane.stage}, rank {lane.rank}{node}"
        if len(boxes) == 1:
            yield f"{worst.name} {where}: {length_phrase(worst)}"
            continue
        beyond = format_duration(sum(map(excess_ns, boxes)))
        yield (
            f"{len(boxes)} tasks {where}: {beyond} over their expected time; most in "
            f"{worst.name}: {length_phrase(worst)}"
        )


def excess_ns(box: Box) -> int:
    """Beyond the expected time; a task that is not over is beyond all."""
    if box.duration_ns is None:
        return 1 << 62
    return box.duration_ns - (box.expected_ns or 0)


def length_phrase(box: Box) -> str:
    """`310 ms, expected 140 ms, no slack`."""
    taken = "not finished" if box.duration_ns is None else format_duration(box.duration_ns)
    parts = [taken]
    if box.expected_ns is not None:
        parts.append(f"expected {format_duration(box.expected_ns)}")
    if box.task in COMPUTE and box.slack_ns is not None:
        parts.append(f"slack {format_duration(box.slack_ns)}" if box.slack_ns else "no slack")
    return ", ".join(parts)


@dataclass(frozen=True)
class Run:
    """Neighbouring columns that show the same: `box` is None where nothing is known to run.
    `beyond`: the part past its expected time."""

    text: str
    box: Box | None
    beyond: bool = False


def lane_runs(timeline: Timeline, lane: Lane, columns: int) -> list[Run]:
    """The lane in exactly `columns` columns. A box shorter than a column has one, unless a box
    that matters more has it; so every box that is blamed or critical is seen."""
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
            runs += _box_runs(box, place, width, limit, timeline.chunks)
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


def _box_runs(box: Box, place: int, width: int, limit: int, chunks: int) -> Iterator[Run]:
    if box.task in TRANSFERS:
        yield Run(("█" if box.blamed else "·") * width, box, box.blamed)
        return
    within = min(max(limit - place, 1), width)
    # A number cut short would be another micro-batch; the chunk can be left out.
    choices = (label(box, chunks), label(box, 1), label(box, 1)[0])
    text = next(one for one in choices if len(one) <= within)
    fill = "━" if box.critical else "─"
    line = text + fill * (within - len(text))
    if box.ended_ns is None and within == width > 1:
        line = line[:-1] + "▶"
    yield Run(line, box)
    if within < width:
        beyond = "█" * (width - within)
        if box.ended_ns is None:
            beyond = beyond[:-1] + "▶"
        yield Run(beyond, box, beyond=True)
