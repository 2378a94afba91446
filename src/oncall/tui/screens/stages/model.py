"""Iterations of a pipeline in the console: the strip of all, a task's words, and its card."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from oncall.core.units import format_duration
from oncall.render.text.lines import Line, Span, cell_len, line, padded
from oncall.render.text.stages import excess_ns, length_phrase
from oncall.tui.models import lanes
from oncall.tui.models.card import table_lines
from oncall.tui.models.lanes import Look, Pictures
from oncall.views.stages.iteration import StagesView, TaskCard
from oncall.views.stages.timeline import COMPUTE, TRANSFERS, Box, Lane, Timeline

_MOST_CALLS = 60
_LONGEST = (
    3.0  # times the baseline, where the strip's scale ends: a warm-up must not flatten the rest
)


# ----------------------------------------------------------------------- strip


def pictures(view: StagesView) -> Pictures:
    """Each iteration by how long it took. The scale begins at half of the baseline, so that a tenth
    more is seen."""
    taken = [one.duration_ns for one in view.iterations if one.duration_ns is not None]
    baseline = min(
        (one.baseline_ns for one in view.iterations if one.baseline_ns),
        default=min(taken, default=1),
    )
    low = baseline / 2
    high = min(max([baseline * 1.5, *taken]), baseline * _LONGEST)
    heights: list[tuple[float | None, Look]] = [
        (None, "open")
        if one.duration_ns is None
        else ((one.duration_ns - low) / (high - low), "late" if one.slow else "normal")
        for one in view.iterations
    ]
    numbers = [one.iteration for one in view.iterations]
    return Pictures(numbers, heights, view.timeline.iteration)


def strip_phrase(view: StagesView) -> str:
    """`iterations 0 to 11, 2 slow`."""
    numbers = [one.iteration for one in view.iterations]
    slow = sum(one.slow for one in view.iterations)
    slow_phrase = f", {slow:,} slow" if slow else ""
    return f"iterations {min(numbers):,} to {max(numbers):,}{slow_phrase}" if numbers else ""


def next_pipeline(view: StagesView) -> int | None:
    """The pipeline after the one drawn; None if there is one only."""
    if len(view.pipelines) < 2:
        return None
    here = view.timeline.replicas[0]
    later = [one for one in view.pipelines if one > here]
    return later[0] if later else view.pipelines[0]


def chosen(timeline: Timeline, text: str = "", faults_only: bool = False) -> Timeline:
    """Only lanes whose stage, rank or node holds every word, and that hold something blamed."""
    shown = lanes.matching(timeline.lanes, text, faults_only)
    return replace(timeline, lanes=shown, whole_ns=timeline.shown_ns)


# ---------------------------------------------------------------------- cursor


def first_box(lane: Lane) -> Box | None:
    """Where the cursor begins on a lane: what is blamed most, else critical, else computes."""
    return max(
        lane.boxes,
        key=lambda box: (
            box.blamed, excess_ns(box) * box.blamed, box.critical, box.task in COMPUTE,
            -box.started_ns,
        ),
        default=None,
    )  # fmt: skip


def box_at(lane: Lane, at_ns: int) -> Box | None:
    """The task that runs at an instant, or the nearest one to it; transfers come last."""
    return min(
        lane.boxes,
        key=lambda box: (lanes.away(box, at_ns), box.task in TRANSFERS),
        default=None,
    )


# ----------------------------------------------------------------------- words


def box_line(lane: Lane, box: Box) -> str:
    """`backward of micro-batch 3 on rank 9: 481 ms, expected 81.6 ms, no slack`."""
    peer = f" with rank {box.peer}" if box.peer is not None else ""
    return f"{box.name}{peer} on rank {lane.rank}: {length_phrase(box)}"


def box_remarks(box: Box, timeline: Timeline) -> Iterator[str]:
    """What more a line of its own says: whether it decides, when it began, after what."""
    if box.blamed and box.ended_ns is None:
        yield "the first task that did not finish; the others wait for it"
    elif box.blamed:
        yield "made the iteration longer"
    elif box.critical:
        yield "on the critical path: a longer task makes a longer iteration"
    elif box.slack_ns:
        yield f"could take {format_duration(box.slack_ns)} longer without delaying the iteration"
    yield f"began at {format_duration(box.started_ns - timeline.started_ns)}"
    if box.wait_ns:
        yield f"{format_duration(box.wait_ns)} bubble before it"


def task_lines(
    lane: Lane, box: Box, timeline: Timeline, card: TaskCard | None, width: int
) -> tuple[Line, ...]:
    """A task, cut to `width` columns: what the timeline knows, then what the card adds."""
    return tuple(one.cut(width) for one in _lines(lane, box, timeline, card))


def _lines(lane: Lane, box: Box, timeline: Timeline, card: TaskCard | None) -> Iterator[Line]:
    yield line(box_line(lane, box), "heading")
    yield line(" · ".join(box_remarks(box, timeline)), "dim")
    if card is None:
        return
    widest = max((cell_len(label) for label, _ in card.facts), default=0)
    before = ""
    for label, value in card.facts:
        shown = "" if label == before else label
        yield Line((Span(padded(shown, widest) + "  ", "label"), Span(value)))
        before = label
    none = "No calls: not recorded, or not fetched from the node."
    yield from table_lines(card.calls, _MOST_CALLS, "Calls, oldest first", none)
