"""The stage screen: an iteration of a pipeline, its critical path, what each task waited for."""

from __future__ import annotations

from typing import ClassVar

from rich.style import Style
from rich.text import Text
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.timer import Timer
from textual.widgets import Static

from oncall.console.stages import StagesView, TaskCard
from oncall.report.stages.text import title
from oncall.report.stages.timeline import Box, Lane
from oncall.report.words import clean
from oncall.tui.actions import needs_world
from oncall.tui.goto import Target
from oncall.tui.messages import Answered, Refused
from oncall.tui.models import stages as model
from oncall.tui.registry import ActionEntry
from oncall.tui.screen import ConsoleScreen, Copy
from oncall.tui.state import State
from oncall.tui.states import theme_style
from oncall.tui.widgets.line_list import LineList
from oncall.tui.widgets.stage_lanes import StageAxis, StageLanes, box_styles
from oncall.units import format_duration

_WIDE = 110
_REST_S = 0.15


def _needs_timeline(screen: ConsoleScreen) -> str | None:
    if why := needs_world(screen):
        return why
    assert isinstance(screen, StagesScreen)
    return None if screen.view is not None else screen.why_nothing


def _needs_before(screen: ConsoleScreen) -> str | None:
    return _needs_neighbour(screen, -1, "this is the first iteration that was recorded")


def _needs_after(screen: ConsoleScreen) -> str | None:
    return _needs_neighbour(screen, 1, "this is the last iteration that was recorded")


def _needs_neighbour(screen: ConsoleScreen, step: int, why_not: str) -> str | None:
    if why := _needs_timeline(screen):
        return why
    assert isinstance(screen, StagesScreen) and screen.view is not None
    return why_not if model.neighbour(screen.view, step) is None else None


def _needs_choice(screen: ConsoleScreen) -> str | None:
    if why := _needs_timeline(screen):
        return why
    assert isinstance(screen, StagesScreen)
    return None if screen.chosen else "the worst iteration is what is shown"


def _needs_pipelines(screen: ConsoleScreen) -> str | None:
    if why := _needs_timeline(screen):
        return why
    assert isinstance(screen, StagesScreen) and screen.view is not None
    return None if model.next_pipeline(screen.view) is not None else "there is one pipeline only"


def _needs_path(screen: ConsoleScreen) -> str | None:
    if why := _needs_timeline(screen):
        return why
    assert isinstance(screen, StagesScreen) and screen.view is not None
    path = screen.view.timeline.path()
    return None if path else "the critical path of this iteration is not known: it is not whole"


class StagesScreen(ConsoleScreen):
    """A strip of iterations, the lanes of one, and the task under the cursor."""

    CSS = """
    StagesScreen #iteration { height: 3; padding: 0 1; text-wrap: nowrap; text-overflow: ellipsis; }
    StagesScreen StageLanes { height: auto; max-height: 60%; }
    StagesScreen #task { text-wrap: nowrap; text-overflow: ellipsis; }
    StagesScreen #card { height: 1fr; padding: 0 1; margin-top: 1; scrollbar-size-vertical: 1; }
    StagesScreen.opened StageLanes { max-height: 4; }
    """
    ACTIONS: ClassVar[tuple[ActionEntry, ...]] = (
        ActionEntry("stages.open", "enter", "Open",
                    "Make room for the task's calls and peers, or for the lanes again.",
                    _needs_timeline, bar=True),
        ActionEntry("stages.before", "left_parenthesis", "Before",
                    "Show the iteration before this one.", _needs_before, bar=True),
        ActionEntry("stages.after", "right_parenthesis", "After",
                    "Show the iteration after this one.", _needs_after, bar=True),
        ActionEntry("stages.worst", "w", "Worst",
                    "Show the iteration that hangs or is slowest again.", _needs_choice),
        ActionEntry("stages.critical", "c", "Critical",
                    "Go to the next task on the critical path.", _needs_path, bar=True),
        ActionEntry("stages.pipeline", "p", "Pipeline", "Show the next pipeline.",
                    _needs_pipelines, bar=True),
        ActionEntry("stages.ranks", "v", "Ranks", "Show a line for each rank, or for each stage.",
                    _needs_timeline, bar=True),
        ActionEntry("stages.rank", "r", "Rank", "Show this rank in the fleet.", _needs_timeline),
    )  # fmt: skip

    def compose_body(self) -> ComposeResult:
        yield Static(id="iteration")
        yield StageLanes(id="lanes")
        yield StageAxis()
        with VerticalScroll(id="card", can_focus=False):
            yield Static(id="task")

    def on_mount(self) -> None:
        self._view: StagesView | None = None
        self._why = "nothing is read yet"
        self._iteration: int | None = None  # None: the worst, whichever it comes to be
        self._pipeline: int | None = None
        self._every = False
        self._opened = False
        self._card: TaskCard | None = None
        self._rest: Timer | None = None
        self.query_one(StageLanes).plain = self.app.ascii_only
        self.query_one(StageLanes).focus()

    # ------------------------------------------------------------------- shown

    @property
    def view(self) -> StagesView | None:
        return self._view

    @property
    def why_nothing(self) -> str:
        """Why no iteration is shown."""
        return self._why

    @property
    def chosen(self) -> bool:
        """Whether the reader chose an iteration or a pipeline."""
        return self._iteration is not None or self._pipeline is not None

    def show(self, state: State, before: State | None) -> None:
        if state.world is None:
            return
        if before is None or before.world is not state.world:
            self._ask_stages()
        elif (state.filter, state.faults_only) != (before.filter, before.faults_only):
            self._show_lanes()

    def _ask_stages(self) -> None:
        iteration, pipeline, every = self._iteration, self._pipeline, self._every
        self.ask(
            "view",
            lambda session: session.stages(iteration, pipeline, every),
            "reading iterations",
        )

    def on_answered(self, message: Answered) -> None:
        if message.question.group == "stages.task":
            self._card = message.value
            self._tell_task()
            return
        self._view = message.value
        self._show_lanes()

    def on_refused(self, message: Refused) -> None:
        if message.question.group == "stages.task":
            self.tell(clean(str(message.error)))
            return
        if self.chosen:  # it is not there, or not at this moment
            self.tell(clean(str(message.error)))
            self.action_worst()
            return
        self._view, self._why = None, clean(str(message.error))
        self.query_one(StageLanes).show(())
        self.query_one("#iteration", Static).update(Text(self._why, theme_style(self.app, "muted")))
        self.query_one("#task", Static).update("")
        self.query_one(StageAxis).update("")

    def _show_lanes(self) -> None:
        if self._view is not None:
            shown = model.chosen(self._view.timeline, self.state.filter, self.state.faults_only)
            self.query_one(StageLanes).show_timeline(shown)
            self.call_after_refresh(self._tell)

    def _tell(self) -> None:
        """All that is around the lanes."""
        if self._view is None:
            return
        lanes = self.query_one(StageLanes)
        self.query_one(StageAxis).show(lanes)
        self.query_one("#iteration", Static).update(self._header(self._view), layout=False)
        self._tell_task()

    def _header(self, view: StagesView) -> Text:
        muted = theme_style(self.app, "muted")
        looks = {
            "usual": theme_style(self.app, "primary"),
            "slow": theme_style(self.app, "state-blamed", bold=True),
            "open": theme_style(self.app, "state-silent"),
        }
        timeline = view.timeline
        text = Text(no_wrap=True, overflow="ellipsis")
        text.append(title(timeline), Style(bold=True))
        text.append("\n")
        told = model.strip_phrase(view)
        if timeline.clock_error_ns and self.size.width >= _WIDE:
            told += f" · clocks agree to {format_duration(timeline.clock_error_ns)}"
        room = max(self.size.width - len(told) - 5, 10)
        for glyph, look, here in model.strip(view, room, self.app.ascii_only):
            text.append(glyph, looks[look] + Style(reverse=here))
        text.append(f"  {told}\n", muted)
        styles = box_styles(self)
        for kind, word in model.legend(timeline):
            style = styles[kind, True]
            text.append("  ", Style(bgcolor=style.bgcolor or style.color))
            text.append(f" {word}  ", muted)
        return text

    def _tell_task(self) -> None:
        """What the timeline knows of the task at once; the rest is asked for."""
        lanes = self.query_one(StageLanes)
        if self._view is None or lanes.row is None or lanes.box is None:
            self.query_one("#task", Static).update("")
            return
        card, here = self._card, (lanes.row.rank, self._view.timeline.iteration, lanes.box)
        if card is None or (card.rank, card.iteration, card.box) != here:
            card = None
            if self._rest is not None:
                self._rest.stop()
            self._rest = self.set_timer(_REST_S, self._ask_card)
        self._draw_task(lanes.row, lanes.box, card)

    def _draw_task(self, lane: Lane, box: Box, card: TaskCard | None) -> None:
        assert self._view is not None
        styles = {
            "heading": theme_style(self.app, "primary", bold=True),
            "label": theme_style(self.app, "muted"),
            "muted": theme_style(self.app, "muted"),
            "text": Style(),
        }
        pane = self.query_one("#card", VerticalScroll)
        width = max(pane.scrollable_content_region.width, 20)
        text = Text(no_wrap=True)
        for line in model.task_lines(lane, box, self._view.timeline, card, width):
            for part, words in line:
                text.append(words, styles[part])
            text.append("\n")
        self.query_one("#task", Static).update(text)

    def _ask_card(self) -> None:
        lanes = self.query_one(StageLanes)
        row, box, view = lanes.row, lanes.box, self._view
        if row is None or box is None or view is None:
            return
        rank, iteration = row.rank, view.timeline.iteration
        self.ask(
            "task", lambda session: session.stage_task(rank, iteration, box), "reading its calls"
        )

    def on_line_list_moved(self, message: LineList.Moved) -> None:
        message.stop()
        self._tell_task()
        self.show_keys()

    def on_stage_lanes_pointed(self) -> None:
        self.query_one("#card", VerticalScroll).scroll_home(animate=False)
        self._tell_task()

    def on_resize(self, event: object) -> None:
        super().on_resize(event)  # type: ignore[arg-type]
        self.call_after_refresh(self._tell)

    # ----------------------------------------------------------------- actions

    def go_to(self, target: Target) -> str | None:
        self._iteration = int(target.value)
        self._ask_stages()
        return None

    def copies(self) -> tuple[Copy, ...]:
        lanes = self.query_one(StageLanes)
        if self._view is None or lanes.row is None or lanes.box is None:
            return ()
        from oncall.report.stages.text import timeline_lines

        timeline = self._view.timeline
        task = model.box_line(lanes.row, lanes.box)
        return (
            Copy("t", "task", task),
            Copy("i", "iteration", "\n".join(timeline_lines(timeline, 100))),
            Copy("r", f"rank {lanes.row.rank}", f"rank {lanes.row.rank}"),
        )

    def cursor_is_on(self) -> str:
        row = self.query_one(StageLanes).row
        return "" if row is None else f"rank {row.rank}"

    def leave(self) -> bool:
        if self._opened:
            self.action_open()
            return True
        if self.chosen:
            self.action_worst()
            return True
        return False

    def action_open(self) -> None:
        self._opened = not self._opened
        self.set_class(self._opened, "opened")
        self.call_after_refresh(self._tell)

    def action_before(self) -> None:
        self._choose(-1)

    def action_after(self) -> None:
        self._choose(1)

    def _choose(self, step: int) -> None:
        if self._view is not None:
            self._iteration = model.neighbour(self._view, step)
            self._ask_stages()

    def action_worst(self) -> None:
        self._iteration = self._pipeline = None
        self._ask_stages()

    def action_critical(self) -> None:
        lanes = self.query_one(StageLanes)
        if self._view is None or lanes.row is None or lanes.box is None:
            return
        if (shown := lanes.timeline) is not None:
            found = model.next_critical(shown, shown.lanes.index(lanes.row), lanes.box)
            if found is not None:
                lanes.go_to_box(*found)

    def action_pipeline(self) -> None:
        if self._view is not None:
            self._iteration = self._view.timeline.iteration
            self._pipeline = model.next_pipeline(self._view)
            self._ask_stages()

    def action_ranks(self) -> None:
        self._every = not self._every
        self._ask_stages()

    def action_rank(self) -> None:
        if (row := self.query_one(StageLanes).row) is not None:
            self.app.go_to(Target("rank", row.rank))
