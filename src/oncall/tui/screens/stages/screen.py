"""The stage screen: an iteration of a pipeline, its critical path, what each task waited for."""

from __future__ import annotations

from collections.abc import Iterable
from textwrap import wrap
from typing import TYPE_CHECKING, Any, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Horizontal, VerticalScroll

from oncall.console.evidence_queries import GetRates, GetStages, GetStageTask
from oncall.core.units import format_duration
from oncall.render.text.lines import plain_lines
from oncall.render.text.stages import blamed_sentences, timeline_lines, title
from oncall.tui.drawing.literal import LiteralText
from oncall.tui.drawing.states import styled
from oncall.tui.screens.lanes import LaneScreen, Words, lane_actions, needs_picture
from oncall.tui.screens.stages import stage_lanes
from oncall.tui.screens.stages.stage_lanes import ROOMY, JobCharts, StageLanes
from oncall.tui.shell.actions import Needs, needs
from oncall.tui.shell.goto import Target
from oncall.tui.shell.keys import ActionEntry
from oncall.tui.shell.messages import Copy
from oncall.tui.widgets.lanes import Pictures
from oncall.views.stages.iteration import StagesView, TaskCard
from oncall.views.stages.timeline import Box, Lane, Timeline

if TYPE_CHECKING:
    from oncall.console.session import Query
    from oncall.tui.shell.state import State

_WIDE = 110
_WORDS = Words("iteration", "recorded", "the worst iteration", "rank", "task")
_SHARED = lane_actions("stages", _WORDS)


_needs_pipelines: Needs[StagesScreen] = needs(
    "there is only one pipeline",
    lambda screen: stage_lanes.next_pipeline(screen.view) is not None,
    needs_picture,
)


class StagesScreen(LaneScreen):
    """A strip of iterations, the lanes of one, and the task under the cursor."""

    CSS = """
    StagesScreen Lanes { max-height: 60%; }
    StagesScreen #below { height: 1fr; margin-top: 1; }
    StagesScreen #card { width: 1fr; }
    StagesScreen.roomy JobCharts { display: block; }
    StagesScreen.opened JobCharts { display: none; }
    """
    WORDS = _WORDS
    view: StagesView
    EMPTY = (
        "The hooks (oncall hooks env), Megatrace and torch.profiler record them. Where they do not "
        "show how the job is divided, state it: --training tp=2,pp=4."
    )
    ACTIONS: ClassVar[tuple[ActionEntry[Any], ...]] = (
        ActionEntry("stages.open", "enter", "Open",
                    "Enlarge the pane with the task's calls and peers to scroll it, or shrink it "
                    "again.",
                    needs_picture, bar=True),
        _SHARED["critical"],
        _SHARED["before"],
        _SHARED["after"],
        ActionEntry("stages.ranks", "v", "Ranks", "Show one line per rank, or one per stage.",
                    needs_picture, bar=True),
        ActionEntry("stages.pipeline", "p", "Pipeline", "Show the next pipeline.",
                    _needs_pipelines, bar=True),
        _SHARED["worst"],
        _SHARED["rank"],
    )  # fmt: skip

    def make_lanes(self) -> StageLanes:
        return StageLanes(id="lanes")

    def compose_below(self) -> ComposeResult:
        with Horizontal(id="below"):
            with VerticalScroll(id="card"):
                yield LiteralText(id="description")
            yield JobCharts()

    def on_mount(self) -> None:
        super().on_mount()
        self._pipeline: int | None = None
        self._every = False

    # ------------------------------------------------------------------- shown

    @property
    def chosen(self) -> bool:
        """Whether the reader chose an iteration or a pipeline."""
        return super().chosen or self._pipeline is not None

    def reading(self) -> Query[StagesView]:
        iteration, pipeline, every = self.chosen_key, self._pipeline, self._every
        assert iteration is None or isinstance(iteration, int)
        return GetStages(iteration, pipeline, every)

    def drawing(self, view: StagesView, text: str, faults_only: bool) -> Timeline:
        return stage_lanes.chosen(view.timeline, text, faults_only)

    def headline(self, view: StagesView, width: int) -> str:  # noqa: ARG002
        return title(view.timeline)

    def pictures(self, view: StagesView) -> Pictures:
        return stage_lanes.pictures(view)

    def strip_phrase(self, view: StagesView) -> str:
        phrase, error_ns = stage_lanes.strip_phrase(view), view.timeline.clock_error_ns
        if error_ns and self.size.width >= _WIDE:
            phrase += f" · clocks agree within {format_duration(error_ns)}"
        return phrase

    def notes(self, view: StagesView) -> Iterable[str]:
        """What is blamed as a whole; of a single task the card tells as much."""
        if len(view.timeline.blamed()) < 2:
            return ()
        [sentence] = blamed_sentences(view.timeline, most=1)
        return wrap(f"▶ {sentence}", self.size.width - 2, subsequent_indent="  ")

    def show(self, state: State, before: State | None) -> None:
        super().show(state, before)
        if state.snapshot is not None and (before is None or before.snapshot is not state.snapshot):
            self._ask_job()

    def _ask_job(self) -> None:
        if self.has_class("roomy") and self.state.snapshot is not None:
            charts = self.query_one(JobCharts)
            self.ask("job", GetRates("job"), charts.show, "reading rates of the job")

    def on_resize(self, event: object) -> None:
        super().on_resize(event)
        roomy = self.size.width >= ROOMY[0] and self.size.height >= ROOMY[1]
        if roomy != self.has_class("roomy"):
            self.set_class(roomy, "roomy")
            self._ask_job()

    def bar_reading(self, lane: Lane, bar: Box) -> Query[TaskCard]:
        rank, iteration = lane.rank, self.view.timeline.iteration
        return GetStageTask(rank, iteration, bar)

    def is_of(self, answer: TaskCard, lane: Lane | None, bar: Box | None) -> bool:
        here = lane is not None and (lane.rank, self.view.timeline.iteration, bar)
        return (answer.rank, answer.iteration, answer.box) == here

    def bar_text(self, lane: Lane, bar: Box, answer: TaskCard | None) -> Text:
        lines = stage_lanes.task_lines(lane, bar, self.view.timeline, answer, self.card_width)
        return styled(self, lines)

    # ----------------------------------------------------------------- actions

    def go_to(self, target: Target) -> str | None:
        self.choose(int(target.value))
        return None

    def copies(self) -> tuple[Copy, ...]:
        row, bar = self.lanes.row, self.lanes.bar
        if not self.has_view or row is None or bar is None:
            return ()
        lines = plain_lines(timeline_lines(self.view.timeline, 100))
        return (
            Copy("t", "task", stage_lanes.box_line(row, bar)),
            Copy("i", "iteration", "\n".join(lines)),
            Copy("r", f"rank {row.rank}", f"rank {row.rank}"),
        )

    def leave(self) -> bool:
        if self.has_class("opened"):
            self.action_open()
            return True
        return super().leave()

    def action_open(self) -> None:
        opened = not self.has_class("opened")
        self.set_class(opened, "opened")
        (self.query_one("#card") if opened else self.lanes).focus()
        self.call_after_refresh(self.show_all)

    def action_worst(self) -> None:
        self._pipeline = None
        super().action_worst()

    def action_pipeline(self) -> None:
        self._pipeline = stage_lanes.next_pipeline(self.view)
        self.choose(self.view.timeline.iteration)

    def action_ranks(self) -> None:
        self._every = not self._every
        self.ask_view()
