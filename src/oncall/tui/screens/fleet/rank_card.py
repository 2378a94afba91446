"""The card of the rank under the cursor, in a pane that scrolls."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import VerticalScroll

from oncall.render.text.spans import Line, line
from oncall.tui.drawing.literal import LiteralText
from oncall.tui.drawing.spans import styled
from oncall.tui.models.card import card_lines
from oncall.views.ranks.rank_card import RankCard


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
        self.query_one(LiteralText).update(styled(self.app, self._lines))
