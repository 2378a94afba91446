"""Iterations of a pipeline in the console: the strip of all, a task's words, and its card."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

from oncall.console.stages import StagesView, TaskCard
from oncall.report.stages.text import length_phrase
from oncall.report.stages.timeline import COMPUTE, TRANSFERS, Box, Lane, Timeline
from oncall.tui.models.card import Line, aligned
from oncall.tui.models.cells import cell_len, cut, padded
from oncall.units import format_duration

Look = Literal["usual", "slow", "open"]
BLOCKS, BLOCKS_ASCII = "▁▂▃▄▅▆▇█", "_.,-~=*#"
_MOST_CALLS = 60


# ----------------------------------------------------------------------- strip


def window(count: int, width: int, at: int) -> tuple[int, int]:
    """Which of `count` iterations fit into `width` columns: the last ones, and `at` always."""
    first = max(0, min(max(0, count - width), at - width // 4))
    return first, min(count, first + width)


def strip(view: StagesView, width: int, plain: bool = False) -> list[tuple[str, Look, bool]]:
    """A glyph for each iteration by how long it took, its look, and whether it is the one drawn.
    The scale begins at half of what is usual, so that a tenth more is seen."""
    numbers = [one.iteration for one in view.iterations]
    here = numbers.index(view.timeline.iteration) if view.timeline.iteration in numbers else 0
    first, last = window(len(numbers), max(width, 1), here)
    shown = view.iterations[first:last]
    taken = [one.duration_ns for one in shown if one.duration_ns is not None]
    usual = min((one.usual_ns for one in shown if one.usual_ns), default=min(taken, default=1))
    low, high = usual / 2, max([usual * 1.5, *taken])
    blocks = BLOCKS_ASCII if plain else BLOCKS
    glyphs: list[tuple[str, Look, bool]] = []
    for place, one in enumerate(shown, first):
        glyph = "?"
        if one.duration_ns is not None:
            share = (one.duration_ns - low) / (high - low)
            glyph = blocks[min(max(int(share * len(blocks)), 0), len(blocks) - 1)]
        look: Look = "open" if one.duration_ns is None else "slow" if one.slow else "usual"
        glyphs.append((glyph, look, place == here))
    return glyphs


def strip_phrase(view: StagesView) -> str:
    """`iterations 0 to 11, 2 slow`."""
    numbers = [one.iteration for one in view.iterations]
    slow = sum(one.slow for one in view.iterations)
    told = f", {slow:,} slow" if slow else ""
    return f"iterations {min(numbers):,} to {max(numbers):,}{told}" if numbers else ""


def neighbour(view: StagesView, step: int) -> int | None:
    """The iteration before (-1) or after (1) the one drawn; None at the end."""
    numbers = [one.iteration for one in view.iterations]
    at = numbers.index(view.timeline.iteration) + step
    return numbers[at] if 0 <= at < len(numbers) else None


def next_pipeline(view: StagesView) -> int | None:
    """The pipeline after the one drawn; None if there is one only."""
    if len(view.pipelines) < 2:
        return None
    here = view.timeline.replicas[0]
    later = [one for one in view.pipelines if one > here]
    return later[0] if later else view.pipelines[0]


def chosen(timeline: Timeline, text: str = "", faults_only: bool = False) -> Timeline:
    """Only lanes whose stage, rank or node holds every word, and that hold something blamed."""
    words = text.lower().split()
    lanes = tuple(
        lane
        for lane in timeline.lanes
        if all(word in f"{lane.title} {lane.node}".lower() for word in words)
        and (lane.blamed or not faults_only)
    )
    return replace(timeline, lanes=lanes, whole_ns=timeline.shown_ns)


# ---------------------------------------------------------------------- cursor


def first_box(lane: Lane) -> int:
    """Where the cursor begins on a lane: what is blamed, else critical, else the first task."""
    for wanted in (
        lambda box: box.blamed,
        lambda box: box.critical,
        lambda box: box.task in COMPUTE,
        lambda box: True,  # noqa: ARG005
    ):
        for number, box in enumerate(lane.boxes):
            if wanted(box):
                return number
    return 0


def box_at(lane: Lane, at_ns: int) -> int:
    """The task that runs at an instant, or the nearest one to it; transfers come last."""

    def away(number: int) -> tuple[int, bool]:
        box = lane.boxes[number]
        end = at_ns if box.ended_ns is None else box.ended_ns
        return max(box.started_ns - at_ns, at_ns - end, 0), box.task in TRANSFERS

    return min(range(len(lane.boxes)), key=away, default=0)


def next_critical(timeline: Timeline, lane: int, box: Box) -> tuple[int, Box] | None:
    """The next task on the critical path, lane and box; after the last the first; None: no path."""
    path = timeline.path()
    if not path:
        return None
    replica = timeline.lanes[lane].replica
    later = [
        one
        for one in path
        if timeline.lanes[one[0]].replica == replica and one[1].started_ns > box.started_ns
    ]
    return later[0] if later else path[0]


# ----------------------------------------------------------------------- words


def box_line(lane: Lane, box: Box) -> str:
    """`backward of micro-batch 3 on rank 9: 481 ms, expected 81.6 ms, no slack`."""
    peer = f" with rank {box.peer}" if box.peer is not None else ""
    return f"{box.name}{peer} on rank {lane.rank}: {length_phrase(box)}"


def box_remarks(box: Box, timeline: Timeline) -> Iterator[str]:
    """What more a line of its own says: whether it decides, when it began, after what."""
    if box.blamed and box.ended_ns is None:
        yield "the first task that does not end: all that waits for it waits"
    elif box.blamed:
        yield "it made the iteration longer"
    elif box.critical:
        yield "on the critical path: any longer, and the iteration is"
    elif box.slack_ns:
        yield f"could take {format_duration(box.slack_ns)} longer without harm"
    yield f"began at {format_duration(box.started_ns - timeline.started_ns)}"
    if box.wait_ns:
        yield f"{format_duration(box.wait_ns)} of bubble before it"


def task_lines(
    lane: Lane, box: Box, timeline: Timeline, card: TaskCard | None, width: int
) -> tuple[Line, ...]:
    """A task, cut to `width` columns: what the timeline knows, then what the card adds."""
    return tuple(_cut(line, width) for line in _lines(lane, box, timeline, card))


def _lines(lane: Lane, box: Box, timeline: Timeline, card: TaskCard | None) -> Iterator[Line]:
    yield (("heading", box_line(lane, box)),)
    yield (("muted", " · ".join(box_remarks(box, timeline))),)
    if card is None:
        return
    widest = max((cell_len(label) for label, _ in card.facts), default=0)
    before = ""
    for label, value in card.facts:
        shown = "" if label == before else label
        yield ("label", padded(shown, widest) + "  "), ("text", value)
        before = label
    yield ()
    if not card.calls.rows:
        yield (("muted", "Its calls were not recorded, or not fetched from its node."),)
        return
    yield (("heading", "Calls it made, as they came"),)
    for number, line in enumerate(aligned(card.calls, _MOST_CALLS)):
        yield (("label" if not number else "text", line),)
    if (more := card.calls.total - min(len(card.calls.rows), _MOST_CALLS)) > 0:
        yield (("muted", f"and {more:,} more"),)


def _cut(line: Line, width: int) -> Line:
    parts, left = [], width
    for part, text in line:
        text = cut(text, left)
        parts.append((part, text))
        left -= cell_len(text)
    return tuple(parts)


def legend(timeline: Timeline) -> Sequence[tuple[str, str]]:
    """(kind of box, word) of what is drawn, for a line of colours."""
    tasks = {box.task for box in timeline.boxes()}
    words = [
        ("forward", "forward", {"forward"}),
        ("backward", "backward", {"backward"}),
        ("transfer", "send, recv", set(TRANSFERS)),
        ("reduction", "reductions", {"gradients", "parameters", "embedding"}),
        ("other", "optimizer", {"optimizer"}),
        ("blamed", "blamed", {"blamed"} if timeline.blamed() else set()),
    ]
    tasks |= {"blamed"}
    return [(kind, word) for kind, word, of in words if of & tasks]
