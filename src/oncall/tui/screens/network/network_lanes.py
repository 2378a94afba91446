"""The waiting graph of a collective, one line per sender, the cursor on one of its steps; and the
other flows by what they contributed to its being late."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.style import Style

from oncall.render.text.waiting import GLYPHS, PLAIN, Run, axis, lane_name, lane_runs
from oncall.tui.drawing.states import theme_style
from oncall.tui.screens.network import model
from oncall.tui.widgets.lanes import Lanes
from oncall.tui.widgets.line_list import LineList
from oncall.views.network.provenance import Contributor
from oncall.views.network.waiting import Lane, Step, WaitingGraph


class NetworkLanes(Lanes[WaitingGraph, Lane, Step]):
    """Up and down choose a sender, left and right one of its steps."""

    WIDEST_NAME = 26
    HELP = """\
A line shows what one rank sent in a collective, step by step. 4━━ is step 4 on the critical \
path, 4── a step off it; █ and ▒ mark time beyond the expected time; dots wait for the data to \
send on. A late step on the path delays all ranks: below is what delayed it in the network. Left \
and right move between steps; tab goes to the text below, where arrows scroll."""

    def bars(self, lane: Lane) -> Sequence[Step]:
        return lane.steps

    def first_bar(self, lane: Lane) -> Step | None:
        """What lost most of the path, else is late, else critical."""
        return max(
            lane.steps,
            key=lambda step: (step.critical and step.late, step.late, step.excess_ns * step.late,
                              step.critical),
            default=None,
        )  # fmt: skip

    def beginning(self, drawing: WaitingGraph) -> tuple[int, Step] | None:
        """The step that made it late."""
        worst = drawing.worst
        return next(
            (
                (number, step)
                for number, lane in enumerate(drawing.lanes)
                for step in lane.steps
                if worst is not None and step.key == worst.key
            ),
            None,
        )

    def path(self) -> Sequence[tuple[int, Step]]:
        lanes = () if self.drawing is None else self.drawing.lanes
        return sorted(
            (
                (number, step)
                for number, lane in enumerate(lanes)
                for step in lane.steps
                if step.critical
            ),
            key=lambda one: one[1].started_ns,
        )

    def is_same(self, before: WaitingGraph, now: WaitingGraph) -> bool:
        return before.collective.key == now.collective.key

    def name_of(self, lane: Lane) -> str:
        return lane_name(lane)

    def axis(self, columns: int) -> str:
        return "" if self.drawing is None else axis(self.drawing, columns)

    # ----------------------------------------------------------------- drawing

    def dress(self) -> None:
        self._looks = {
            "critical": theme_style(self.app, "primary", bold=True),
            "other": theme_style(self.app, "muted"),
            "waits": theme_style(self.app, "state-waiting"),
            "idle": Style(),
        }
        self._off_path = theme_style(self.app, "warning")
        super().dress()

    def pieces(self, lane: Lane, columns: int, under: Step | None) -> Iterable[tuple[str, Style]]:
        if self.drawing is not None:
            for run in lane_runs(self.drawing, lane, columns, plain=self.plain):
                yield run.text, self._style(run, under)

    def _style(self, run: Run, under: Step | None) -> Style:
        if run.look == "beyond":  # a full block turned round would be blank
            return self.blamed if run.step is not None and run.step.critical else self._off_path
        pointed = run.step is not None and run.step is under
        style = self._looks.get(run.look, Style())
        return style + Style(reverse=True) if pointed else style

    def legend(self) -> Iterator[tuple[str, Style, str]]:
        """What lines mean, of those that are there."""
        glyphs = PLAIN if self.plain else GLYPHS
        steps = [step for lane in self.rows for step in lane.steps]
        late = [step for step in steps if step.late]
        yield glyphs.critical * 2, self._looks["critical"], "critical path"
        if any(step.critical for step in late):
            yield glyphs.beyond, self.blamed, "late"
        if any(not step.critical for step in late):
            yield glyphs.beyond_other, self._off_path, "late off it"
        if any(step.waited_for == "data" for step in steps):
            yield glyphs.waits * 2, self._looks["waits"], "waits for data"


class NetworkFlows(LineList[Contributor]):
    """One line of each: its place, name, part as a bar and in percent."""

    HELP = """\
Other flows, by their share in the delay of the collective; act on the first one first. A flow's \
contribution is the number of its packets that late steps queued behind, weighted by the time \
each step lost."""

    plain = False

    def key(self, row: Contributor) -> int:
        return row.flow

    def dress(self) -> None:
        self._bar = theme_style(self.app, "state-blamed")
        self._muted = theme_style(self.app, "muted")
        super().dress()

    def draw(self, row: Contributor, width: int) -> Iterable[tuple[str, Style]]:
        name, bar, share = model.flow_words(row, width, self.plain)
        yield f"{name} ", Style()
        yield bar, self._bar
        yield f" {share}", self._muted
