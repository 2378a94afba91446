"""Members of a communicator against its last rounds: a row each, or one for members with equal
rounds.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import numpy as np
from rich.style import Style
from rich.text import Text
from textual.binding import Binding, BindingType

from oncall.core.units import NS_PER_S, format_duration
from oncall.render.text.lines import cut, padded
from oncall.tui.drawing.literal import LiteralText
from oncall.tui.drawing.states import STATES, state_styles, theme_style
from oncall.tui.models.rates import BLOCKS, BLOCKS_ASCII, GAP, Scale, levels, nice_ceiling
from oncall.tui.screens.communicators import model
from oncall.tui.screens.communicators.model import MemberRow
from oncall.tui.widgets.line_list import LineList
from oncall.views.ranks.communicators import CommunicatorView

LABEL = 26  # columns before the rounds, the cursor's mark among them
_END = 6  # columns behind them, for the number of the last


class RoundGrid(LineList[MemberRow]):
    """Rounds are columns, the newest at the right; the cursor is on a row and a column."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,h", "aside(-1)", "Previous round", id="rounds.left", show=False),
        Binding("right,l", "aside(1)", "Next round", id="rounds.right", show=False),
    ]
    HELP = """\
Members (rows) by the last rounds (columns), newest at the right. Members with equal states share \
a row. ▼ marks the round that the finding is about."""

    def __init__(self, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self.view: CommunicatorView | None = None
        self._seq: int | None = None  # that the column cursor stays on; None: the one that matters

    def show_view(self, view: CommunicatorView, folded: bool) -> None:
        """Show a communicator; another one than before begins at the round that matters."""
        before = self.view
        if before is None or before.summary.comm != view.summary.comm:
            self._seq = None
        self.view = view
        self.show(model.member_rows(view, folded))
        if before is None or not np.array_equal(before.seqs, view.seqs):
            self.refresh()

    @property
    def column(self) -> int:
        """The column that the cursor is on; 0 without rounds."""
        if self.view is None:
            return 0
        return model.column_of(self.view, self.view.finding_seq if self._seq is None else self._seq)

    @property
    def rounds_shown(self) -> tuple[int, int]:
        """[first, last) of the columns in sight."""
        rounds = 0 if self.view is None else len(self.view.seqs)
        return model.window(rounds, max(self.size.width - LABEL - _END, 1), self.column)

    # ----------------------------------------------------------------- drawing

    def key(self, row: MemberRow) -> int:
        return row.ranks[0]

    def unchanged(self, before: MemberRow, now: MemberRow) -> bool:
        return before.ranks == now.ranks and np.array_equal(before.state, now.state)

    def dress(self) -> None:
        self._states = state_styles(self.app)
        super().dress()

    def draw(self, row: MemberRow, width: int) -> Iterable[tuple[str, Style]]:  # noqa: ARG002
        yield padded(cut(row.label, LABEL - 2), LABEL - 1), Style()
        if self.view is None or not len(self.view.seqs):
            yield "no rounds recorded", Style(dim=True)
            return
        first, last = self.rounds_shown
        finding_at = model.finding_column(self.view) if self.view.finding_seq is not None else None
        states = model.shown_states(row, finding_at)
        for column in range(first, last):
            style = self._states[states[column]]
            if column == self.column:
                style += Style(underline=True, bold=True)
            yield STATES[states[column]].letter, style

    # ------------------------------------------------------------------ cursor

    def action_aside(self, step: int) -> None:
        if self.view is None or not len(self.view.seqs):
            return
        column = min(max(self.column + step, 0), len(self.view.seqs) - 1)
        if column != self.column:
            self._seq = int(self.view.seqs[column])
            self.refresh()
            self.post_message(self.Pointed())


class RoundHeader(LiteralText):
    """Above the members: how long each round took, and which it was."""

    DEFAULT_CSS = "RoundHeader { height: 2; }"

    def show(self, grid: RoundGrid, plain: bool) -> None:
        """Draw what the grid shows, over its columns."""
        view = grid.view
        if view is None or not len(view.seqs):
            self.update("", layout=False)
            return
        first, last = grid.rounds_shown
        seconds = model.durations(view)[first:last]
        known = seconds[np.isfinite(seconds)]
        top = nice_ceiling(float(known.max())) if len(known) else 1.0
        blocks, gap = (BLOCKS_ASCII, ".") if plain else (BLOCKS, "·")
        glyphs = "".join(
            gap if level == GAP else blocks[level]
            for level in levels(seconds, Scale(0.0, top)).tolist()
        )
        muted = theme_style(self.app, "muted")
        text = Text(no_wrap=True, overflow="crop")
        text.append(f" took, max {format_duration(top * NS_PER_S)}".ljust(LABEL), muted)
        text.append(glyphs + "\n", theme_style(self.app, "primary"))
        text.append(" operation".ljust(LABEL), muted)
        text.append(model.axis(view, first, last, grid.column), muted)
        text.append(f" {view.seqs[last - 1]}", muted)
        self.update(text, layout=False)
