"""The timeline of an iteration: a line a stage or a rank, the cursor on one of its tasks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.color import Color
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static

from oncall.report.stages.cells import Run, lane_runs
from oncall.report.stages.text import axis, lane_name
from oncall.report.stages.timeline import COMPUTE, TRANSFERS, Box, Lane, Timeline, idle_share
from oncall.tui.models import stages as model
from oncall.tui.models.cells import cut, padded
from oncall.tui.states import theme_style
from oncall.tui.widgets.line_list import LineList

_IDLE = 5  # columns for the share of the time without a task
_WIDEST_NAME = 34
_REDUCTIONS = ("gradients", "parameters", "embedding")
_FAINT = 0.35  # of a colour, for what is off the critical path
_COLOURS = {
    "forward": "primary",
    "backward": "success",
    "transfer": "state-running",
    "reduction": "state-silent",
    "other": "warning",
    "blamed": "state-blamed",
}


def kind_of(box: Box) -> str:
    """Which colour a box has: of its direction, of transfers, of reductions, or of other work."""
    if box.task in COMPUTE:
        return box.task
    if box.task in TRANSFERS:
        return "transfer"
    return "reduction" if box.task in _REDUCTIONS else "other"


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


class StageLanes(LineList[Lane]):
    """Up and down choose a lane, left and right a task on it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,h", "cursor_left", "Task before", id="stages.left", show=False),
        Binding("right,l", "cursor_right", "Task after", id="stages.right", show=False),
    ]
    HELP = """\
A line is a pipeline stage, told by the rank that decides it. F3━━ is the forward of micro-batch 3 \
on the critical path, f3── one off it; B and b backwards; P and G parameters and gradients, O the \
optimizer; dots wait in a send or receive, blanks are bubbles. █ is beyond the expected time of \
what is blamed. At the right the share of its time without a task."""

    class Pointed(Message):
        """The cursor came to another task of the same lane."""

        def can_replace(self, message: Message) -> bool:
            return isinstance(message, StageLanes.Pointed)

    def __init__(self, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self.plain = False
        self._timeline: Timeline | None = None
        self._column_ns: int | None = None  # where the cursor stays when it changes lanes

    def show_timeline(self, timeline: Timeline) -> None:
        """Draw another one; the cursor begins at what is blamed, or stays on its task."""
        before = self._timeline
        same = before is not None and before.iteration == timeline.iteration
        self._timeline = timeline
        if not same:
            self._column_ns = None
        self.show(timeline.lanes)
        if not same:
            blamed = [number for number, lane in enumerate(timeline.lanes) if lane.blamed]
            if blamed:
                self._move(blamed[0])
            if self.row is not None:
                self._point_to(model.first_box(self.row))
        self.refresh()

    @property
    def timeline(self) -> Timeline | None:
        return self._timeline

    @property
    def box_number(self) -> int:
        """Which task of its lane the cursor is on."""
        if self.row is None:
            return 0
        if self._column_ns is None:
            return model.first_box(self.row)
        return model.box_at(self.row, self._column_ns)

    @property
    def box(self) -> Box | None:
        """The task that the cursor is on."""
        if self.row is None or not self.row.boxes:
            return None
        return self.row.boxes[self.box_number]

    def go_to_box(self, lane: int, box: Box) -> None:
        """Put the cursor on a task."""
        self._column_ns = _inside(box)
        if lane == self._at:
            self.refresh()
            self.post_message(self.Pointed())
        else:
            self._move(lane)

    @property
    def label_columns(self) -> int:
        """Columns before the picture, the cursor's mark not among them."""
        if self._timeline is None:
            return 0
        names = (lane_name(self._timeline, lane, self.size.width) for lane in self._timeline.lanes)
        return min(max(map(len, names), default=0), _WIDEST_NAME) + 1

    @property
    def columns(self) -> int:
        """Columns of the picture."""
        room = self.scrollable_content_region.width  # what a scroll bar leaves
        return max(room - 1 - self.label_columns - _IDLE - 1, 1)

    # ----------------------------------------------------------------- drawing

    def key(self, row: Lane) -> int:
        return row.rank

    def dress(self) -> None:
        self._boxes = box_styles(self)
        self._blamed = theme_style(self.app, "state-blamed", bold=True)
        self._muted = theme_style(self.app, "muted")
        super().dress()

    def draw(self, row: Lane, width: int) -> Iterable[tuple[str, Style]]:
        timeline = self._timeline
        if timeline is None:
            return
        label = self.label_columns
        name = padded(cut(lane_name(timeline, row, self.size.width), label - 1), label)
        yield name, self._blamed if row.blamed else Style()
        under = self.box if self.row is row else None
        for run in lane_runs(timeline, row, self.columns, plain=self.plain):
            yield run.text, self._style(run, under)
        yield f"{idle_share(timeline, row):>{_IDLE + 1}.0%}"[: max(width, 0)], self._muted

    def _style(self, run: Run, under: Box | None) -> Style:
        if run.box is None:
            return Style()
        if run.beyond:
            return self._boxes["blamed", True]
        style = self._boxes[kind_of(run.box), run.box.critical]
        return style + Style(reverse=True) if run.box is under else style

    # ------------------------------------------------------------------ cursor

    def _point_to(self, number: int) -> None:
        if self.row is None or not self.row.boxes:
            return
        box = self.row.boxes[min(max(number, 0), len(self.row.boxes) - 1)]
        self._column_ns = _inside(box)
        self.refresh()
        self.post_message(self.Pointed())

    def action_cursor_left(self) -> None:
        self._step(-1)

    def action_cursor_right(self) -> None:
        self._step(1)

    def _step(self, step: int) -> None:
        """To the next task that is no transfer, of which there are too many to walk through."""
        if self.row is None or not self.row.boxes:
            return
        here = self.row.boxes[self.box_number]
        others = [
            number for number, box in enumerate(self.row.boxes) if box.task not in TRANSFERS
        ] or list(range(len(self.row.boxes)))
        ahead = [
            number
            for number in others
            if (self.row.boxes[number].started_ns - here.started_ns) * step > 0
        ]
        if ahead:
            self._point_to(ahead[0] if step > 0 else ahead[-1])

    def on_click(self, event: events.Click) -> None:
        super().on_click(event)
        if self._timeline is not None and self.row is not None:
            column = event.x - 1 - self.label_columns
            first, last = self._timeline.shown_ns
            if 0 <= column < self.columns:
                at_ns = first + (2 * column + 1) * (last - first) // (2 * self.columns)
                self._point_to(model.box_at(self.row, at_ns))


def _inside(box: Box) -> int:
    """An instant within a box, by which it is found again."""
    return box.started_ns if box.ended_ns is None else (box.started_ns + box.ended_ns) // 2


class StageAxis(Static):
    """Below the lanes: time since the iteration began, and what the numbers at the right are."""

    DEFAULT_CSS = "StageAxis { height: 1; }"

    def show(self, lanes: StageLanes) -> None:
        if lanes.timeline is None:
            self.update("", layout=False)
            return
        line = " " * (lanes.label_columns + 1)
        line += padded(axis(lanes.timeline, lanes.columns), lanes.columns) + " idle"
        text = Text(line, theme_style(self.app, "muted"), no_wrap=True, overflow="crop")
        self.update(text, layout=False)
