"""The waiting graph of a collective: a line a sender, the cursor on one of its steps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import Static

from oncall.report.network.cells import GLYPHS, PLAIN, Run, lane_runs
from oncall.report.network.waiting import Lane, Step, WaitingGraph
from oncall.report.network.waiting_text import axis, lane_name
from oncall.tui.models import network as model
from oncall.tui.models.cells import cut, padded
from oncall.tui.states import theme_style
from oncall.tui.widgets.line_list import LineList

_WIDEST_NAME = 26


class NetworkLanes(LineList[Lane]):
    """Up and down choose a sender, left and right one of its steps."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,h", "cursor_left", "Step before", id="network.left", show=False),
        Binding("right,l", "cursor_right", "Step after", id="network.right", show=False),
    ]
    HELP = """\
A line is what a rank sent in a collective, step after step. 4━━ is step 4 on the critical path, \
4── one off it, █ and ▒ are beyond its expected time, and dots wait for the data that it sends on. \
A step on the path that is late made everybody wait: below is what held it up in the network."""

    class Pointed(Message):
        """The cursor came to another step of the same lane."""

        def can_replace(self, message: Message) -> bool:
            return isinstance(message, NetworkLanes.Pointed)

    def __init__(self, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self.plain = False
        self._graph: WaitingGraph | None = None
        self._cursor_ns: int | None = None  # where it stays when it changes lanes

    def show_graph(self, graph: WaitingGraph) -> None:
        """Draw another one; the cursor begins at what made it late, or stays on its step."""
        before = self._graph
        same = before is not None and before.collective.key == graph.collective.key
        self._graph = graph
        if not same:
            self._cursor_ns = None
        self.show(graph.lanes)
        if not same and graph.worst is not None:
            self.go_to(graph.worst.src)
            self._point_to(graph.worst if self._drawn(graph.worst) else None)
        self.refresh()

    def _drawn(self, step: Step) -> bool:
        return self.row is not None and step.key in {one.key for one in self.row.steps}

    @property
    def graph(self) -> WaitingGraph | None:
        return self._graph

    @property
    def step(self) -> Step | None:
        """The step that the cursor is on."""
        if self.row is None:
            return None
        if self._cursor_ns is None:
            return model.first_step(self.row)
        return model.step_at(self.row, self._cursor_ns)

    def go_to_step(self, lane: int, step: Step) -> None:
        """Put the cursor on a step."""
        self._cursor_ns = _inside(step)
        if lane == self._at:
            self.refresh()
            self.post_message(self.Pointed())
        else:
            self._move(lane)

    @property
    def label_columns(self) -> int:
        """Columns before the picture, the cursor's mark not among them."""
        names = (lane_name(lane) for lane in self._graph.lanes) if self._graph else ()
        return min(max(map(len, names), default=0), _WIDEST_NAME) + 1

    @property
    def columns(self) -> int:
        """Columns of the picture."""
        room = self.scrollable_content_region.width  # what a scroll bar leaves
        return max(room - 1 - self.label_columns, 1)

    # ----------------------------------------------------------------- drawing

    def key(self, row: Lane) -> int:
        return row.rank

    def legend(self) -> Text:
        """What lines mean, of those that are there, each in its colour."""
        glyphs = PLAIN if self.plain else GLYPHS
        steps = [step for lane in self.rows for step in lane.steps]
        late = [step for step in steps if step.late]
        text = Text(no_wrap=True, overflow="ellipsis")
        for glyph, style, means, there in (
            (glyphs.critical * 2, self._looks["critical"], "critical path", True),
            (glyphs.beyond, self._blamed, "late", any(one.critical for one in late)),
            (glyphs.beyond_other, self._beside, "late off it", any(not o.critical for o in late)),
            (glyphs.waits * 2, self._looks["waits"], "waits for data",
             any(step.waited_for == "data" for step in steps)),
        ):  # fmt: skip
            if there:
                text.append(f"{glyph} ", style)
                text.append(f"{means}   ", theme_style(self.app, "muted"))
        return text

    def dress(self) -> None:
        self._blamed = theme_style(self.app, "state-blamed", bold=True)
        self._looks = {
            "critical": theme_style(self.app, "primary", bold=True),
            "other": theme_style(self.app, "muted"),
            "waits": theme_style(self.app, "state-waiting"),
            "idle": Style(),
        }
        self._beside = theme_style(self.app, "warning")
        super().dress()

    def draw(self, row: Lane, width: int) -> Iterable[tuple[str, Style]]:
        if self._graph is None:
            return
        label = self.label_columns
        name = padded(cut(lane_name(row), label - 1), label)
        yield name, self._blamed if row.blamed else Style()
        under = self.step if self.row is row else None
        for run in lane_runs(self._graph, row, min(self.columns, width), plain=self.plain):
            yield run.text, self._style(run, under)

    def _style(self, run: Run, under: Step | None) -> Style:
        style = self._looks.get(run.look, Style())
        if run.look == "beyond":  # a full block turned round would be blank
            return self._blamed if run.step is not None and run.step.critical else self._beside
        pointed = run.step is not None and run.step is under
        return style + Style(reverse=True) if pointed else style

    # ------------------------------------------------------------------ cursor

    def _point_to(self, step: Step | None) -> None:
        if step is None:
            return
        self._cursor_ns = _inside(step)
        self.refresh()
        self.post_message(self.Pointed())

    def action_cursor_left(self) -> None:
        self._walk(-1)

    def action_cursor_right(self) -> None:
        self._walk(1)

    def _walk(self, by: int) -> None:
        here = self.step
        if self.row is None or here is None:
            return
        at = [step.key for step in self.row.steps].index(here.key) + by
        if 0 <= at < len(self.row.steps):
            self._point_to(self.row.steps[at])

    def on_click(self, event: events.Click) -> None:
        super().on_click(event)
        column = event.x - 1 - self.label_columns
        if self._graph is not None and self.row is not None and 0 <= column < self.columns:
            first, last = self._graph.shown_ns
            at_ns = first + (2 * column + 1) * (last - first) // (2 * self.columns)
            self._point_to(model.step_at(self.row, at_ns))


def _inside(step: Step) -> int:
    """An instant within a step, by which it is found again."""
    return (step.started_ns + step.ended_ns) // 2


class NetworkAxis(Static):
    """Below the lanes: time since the collective began."""

    DEFAULT_CSS = "NetworkAxis { height: 1; }"

    def show(self, lanes: NetworkLanes) -> None:
        line = ""
        if lanes.graph is not None:
            line = " " * (lanes.label_columns + 1) + axis(lanes.graph, lanes.columns)
        text = Text(line, theme_style(self.app, "muted"), no_wrap=True, overflow="crop")
        self.update(text, layout=False)
