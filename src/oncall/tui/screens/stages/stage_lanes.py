"""The timeline of an iteration: one line per stage or rank, the cursor on one of its tasks; its
words and its card, and the job's charts beside it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from rich.style import Style
from textual.app import ComposeResult
from textual.color import Color
from textual.containers import Vertical
from textual.widget import Widget

from oncall.core.units import format_duration
from oncall.render.text.lines import Line, Span, cell_len, line, padded
from oncall.render.text.stages import (
    Run,
    axis,
    excess_ns,
    lane_name,
    lane_runs,
    length_phrase,
)
from oncall.tui.drawing.states import theme_style
from oncall.tui.models import rates
from oncall.tui.screens.rates import RateChart
from oncall.tui.widgets.lanes import Lanes, Look, Pictures, away, matching
from oncall.tui.widgets.sheet_table import table_lines
from oncall.views.rates.buckets import Series
from oncall.views.stages.iteration import StagesView, TaskCard
from oncall.views.stages.timeline import (
    COMPUTE,
    LETTERS,
    TRANSFERS,
    Box,
    Lane,
    Timeline,
    idle_share,
)

_REDUCTIONS = ("gradients", "parameters", "embedding")
_FAINT = 0.35  # of a colour, for what is off the critical path
_COLOURS = {
    "forward": "primary",
    "backward": "success",
    "transfer": "state-running",
    "reduction": "state-unknown",
    "other": "warning",
    "blamed": "state-blamed",
    "blocked": "state-hung",
}


def _is_blocked(box: Box) -> bool:
    """Whether it waits and is not over: it is no work, and its rank no culprit."""
    return box.ended_ns is None and box.task not in COMPUTE and not box.blamed


def _kind(task: str) -> str:
    """Which colour a box has: of its direction, of transfers, of reductions, or of other work."""
    if task in COMPUTE:
        return task
    if task in TRANSFERS:
        return "transfer"
    return "reduction" if task in _REDUCTIONS else "other"


def box_styles(widget: Widget) -> dict[tuple[str, bool], Style]:
    """The style of each kind of box in the theme in force, off the critical path and on it."""
    styles: dict[tuple[str, bool], Style] = {}
    for kind, variable in _COLOURS.items():
        strong = theme_style(widget.app, variable, bold=True)
        styles[kind, True] = _filled(widget, variable, 1.0) if kind in COMPUTE else strong
        styles[kind, False] = _filled(widget, variable, _FAINT) if kind in COMPUTE else strong
    return styles


def _filled(widget: Widget, variable: str, share: float) -> Style:
    """Letters on the colour, mixed with the background; of a terminal's own sixteen colours, which
    cannot be mixed, letters in it."""
    colours = widget.app.theme_variables
    ground = Color.parse(colours["background"])
    fill = Color.parse(colours[variable])
    if fill.ansi is not None or ground.ansi is not None:
        return theme_style(widget.app, variable, bold=share == 1)
    ink = ground if share == 1 else Color.parse(colours["foreground"])
    shade = ground.blend(fill, share).rich_color
    return Style(color=ink.rich_color, bgcolor=shade, bold=share == 1)


class StageLanes(Lanes[Timeline, Lane, Box]):
    """Up and down choose a stage or rank, left and right a task of it."""

    WIDEST_NAME = 34
    BESIDE = "  idle"
    HELP = """\
A line is a pipeline stage, shown by one rank: the blamed one, else the one on the critical path. \
F3━━ is the forward of micro-batch 3 on the critical path, f3── one off it; B and b are backwards, \
P and G parameters and gradients, O the optimizer; dots are send/recv, blanks are bubbles. █ is \
time beyond the expected time of a blamed task, or a blamed task that is not over. At the right is \
the share of time without a task. Left and right move between tasks; tab goes to the text below, \
where arrows scroll."""

    def bars(self, lane: Lane) -> Sequence[Box]:
        return lane.boxes

    def stops(self, lane: Lane) -> Sequence[Box]:
        """Tasks that are no transfers, of which there are too many to walk through."""
        return [box for box in lane.boxes if box.task not in TRANSFERS] or lane.boxes

    def bar_at(self, lane: Lane, at_ns: int) -> Box | None:
        return box_at(lane, at_ns)

    def first_bar(self, lane: Lane) -> Box | None:
        return first_box(lane)

    def beginning(self, drawing: Timeline) -> tuple[int, Box] | None:
        """The task that made it longest."""
        return max(drawing.blamed(), key=lambda one: excess_ns(one[1]), default=None)

    def path(self) -> Sequence[tuple[int, Box]]:
        return () if self.drawing is None else self.drawing.path()

    def is_same(self, before: Timeline, now: Timeline) -> bool:
        return before.iteration == now.iteration

    def name_of(self, lane: Lane) -> str:
        return "" if self.drawing is None else lane_name(self.drawing, lane, self.size.width)

    def axis(self, columns: int) -> str:
        return "" if self.drawing is None else axis(self.drawing, columns)

    # ----------------------------------------------------------------- drawing

    def dress(self) -> None:
        self._boxes = box_styles(self)
        super().dress()

    def pieces(self, lane: Lane, columns: int, under: Box | None) -> Iterable[tuple[str, Style]]:
        if self.drawing is None:
            return
        for run in lane_runs(self.drawing, lane, columns):
            yield run.text, self._style(run, under)
        yield f"{idle_share(self.drawing, lane):>{len(self.BESIDE)}.0%}", self.muted

    def _style(self, run: Run, under: Box | None) -> Style:
        if run.box is None:
            return Style()
        if run.beyond:
            return self._boxes["blamed", True]
        if _is_blocked(run.box):
            style = self._boxes["blocked", True]
            return style + Style(reverse=True) if run.box is under else style
        style = self._boxes[_kind(run.box.task), run.box.critical]
        return style + Style(reverse=True) if run.box is under else style

    def legend(self) -> Iterator[tuple[str, Style, str]]:
        """What boxes mean, of those that are there, drawn as they are on lanes."""
        if self.drawing is None:
            return
        boxes = list(self.drawing.boxes())
        tasks = {box.task for box in boxes}
        for task in COMPUTE:
            if task in tasks:
                critical = any(box.critical for box in boxes if box.task == task)
                letter = LETTERS[task] if critical else LETTERS[task].lower()
                yield f" {letter} ", self._boxes[task, critical], task
        if self.path():
            yield "F3━━", self._boxes["forward", True], "critical"
        if any(box.blamed for box in boxes):
            yield "█", self._boxes["blamed", True], "too long"
        if any(map(_is_blocked, boxes)):
            yield "··", self._boxes["blocked", True], "blocked"
        if any(box.task in TRANSFERS and not _is_blocked(box) for box in boxes):
            yield "··", self._boxes["transfer", True], "send"
        for kind, means in (("reduction", "reduce"), ("other", "other")):
            letters = [LETTERS.get(one, "X") for one in sorted(tasks) if _kind(one) == kind]
            if letters:
                yield " ".join(dict.fromkeys(letters)), self._boxes[kind, True], means


ROOMY = (150, 44)  # columns and lines of a screen from which on there is room


class JobCharts(Vertical):
    """At most two charts over the same time, iterations first; what was not recorded is empty."""

    DEFAULT_CSS = """
    JobCharts { display: none; width: 1fr; border-left: solid $panel; }
    JobCharts > RateChart { height: 1fr; max-height: 20; border-top: none; }
    """

    def compose(self) -> ComposeResult:
        yield RateChart()
        yield RateChart()

    def show(self, series: Sequence[Series]) -> None:
        """Show these of the job's rates."""
        shown = sorted(series, key=lambda one: one.unit != "s")[:2]
        scales, span = rates.scales(shown, shared=False), rates.span(shown)
        for place, chart in enumerate(self.query(RateChart)):
            if place < len(shown):
                chart.show(shown[place], scales[place], span)
            else:
                chart.show(None, rates.Scale(0.0, 1.0), span)


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
    shown = matching(timeline.lanes, text, faults_only)
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
        key=lambda box: (away(box, at_ns), box.task in TRANSFERS),
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
