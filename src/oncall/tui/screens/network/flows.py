"""Flows that are not the collective's, by what they contributed to its being late."""

from __future__ import annotations

from collections.abc import Iterable

from rich.style import Style

from oncall.tui.drawing.states import theme_style
from oncall.tui.screens.network import model
from oncall.tui.widgets.line_list import LineList
from oncall.views.network.provenance import Contributor


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
