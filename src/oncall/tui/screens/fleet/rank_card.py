"""Panes beside and below the grid: the card of the rank under the cursor, and what each rank hands
to collectives, with that rank's as a chart."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll

from oncall.render.text.lines import Line, line
from oncall.tui.drawing.literal import LiteralText
from oncall.tui.drawing.states import styled
from oncall.tui.models import rates as model
from oncall.tui.screens.rates import RateChart, RateList
from oncall.tui.widgets.sheet_table import card_lines
from oncall.views.ranks.rank_card import RankCard
from oncall.views.rates.buckets import Series


class RankCardPane(VerticalScroll, can_focus=False):
    """Empty until the first card; a new one takes the place of the old only when it differs."""

    DEFAULT_CSS = """
    RankCardPane { width: 52; height: 1fr; border-left: solid $panel; padding: 0 1;
        scrollbar-size-vertical: 1; scrollbar-gutter: stable; }
    """

    def compose(self) -> ComposeResult:
        yield LiteralText()

    def on_mount(self) -> None:
        self._card: RankCard | None = None
        self._lines: tuple[Line, ...] = ()
        self.app.theme_changed_signal.subscribe(self, lambda _: self._draw())

    def show(self, card: RankCard) -> None:
        if self._card is None or card.rank != self._card.rank:
            self.scroll_home(animate=False)
        self._card = card
        self._refill()

    def say(self, text: str) -> None:
        """Words in the card's place."""
        self._card, self._lines = None, (line(text, "dim"),)
        self._draw()

    def on_resize(self) -> None:
        self._refill()

    def _refill(self) -> None:
        if self._card is None or not self.size.width:
            return
        lines = card_lines(self._card, self.scrollable_content_region.width)
        if lines != self._lines:
            self._lines = lines
            self._draw()

    def _draw(self) -> None:
        self.query_one(LiteralText).update(styled(self, self._lines))


LEAST = 16  # lines, with a few ranks above the chart


class RankRates(Vertical):
    """Suspects first, on one scale; the line of the rank under the cursor is marked."""

    DEFAULT_CSS = """
    RankRates { height: 1fr; border-top: solid $panel; }
    RankRates > .rates-title { height: 1; padding: 0 1; color: $muted; text-wrap: nowrap;
        text-overflow: ellipsis; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._series: tuple[Series, ...] = ()

    def compose(self) -> ComposeResult:
        yield LiteralText(classes="rates-title")
        yield PeerRates()
        yield RateChart()

    def show(self, series: Sequence[Series], rank: int | None) -> None:
        """Show these rates; none: that none were recorded."""
        self._series = tuple(model.chosen(series))
        what = "bytes handed to collectives"
        title = f"Rates: {what}" if series else f"Not recorded: {what}"
        self.query_one(".rates-title", LiteralText).update(title, layout=False)
        self.query_one(PeerRates).show_rates(self._series, shared=True)
        self.point_at(rank)

    def point_at(self, rank: int | None) -> None:
        """The chart is of this rank, if its rate is among those shown."""
        peers = self.query_one(PeerRates)
        row = next((one for one in self._series if one.subject == f"rank {rank}"), None)
        if row is not None:
            peers.go_to(peers.key(row))
        scale = model.Scale(0.0, 1.0) if row is None else peers.scale_of(row)
        self.query_one(RateChart).show(row, scale, peers.span)


class PeerRates(RateList, can_focus=False):
    """The keys belong to the grid above."""

    DEFAULT_CSS = "PeerRates { height: 1fr; }"
