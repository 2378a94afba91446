"""How a screen comes: made ahead, styled once, laid out until nothing moves, then painted once.

Textual styles the screen that goes, too, paints what comes while it is half made, and shows it
after a fixed 50 ms.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from textual import events
from textual.app import App
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet
from textual.css.types import CSSLocation
from textual.dom import DOMNode
from textual.geometry import Size
from textual.screen import Screen
from textual.timer import Timer
from textual.widget import AwaitMount, Widget

_MOST_ROUNDS = 6  # of layouts and what follows; what still moves then is painted as it is
_LONGEST_S = 0.4  # and one that does not settle, after so long


class SwitchingApp(App[None]):
    """Nothing is painted from the key for a screen until that screen has settled."""

    _hold: Timer | None = None
    _switches = False

    def switch_mode(self, mode: str) -> AwaitMount:
        if mode == self.current_mode:
            return super().switch_mode(mode)
        self.let_paint()  # another screen, which has not settled
        self._begin_batch()
        self._hold = self.set_timer(_LONGEST_S, self._let_anything_paint)
        self._switches = True
        try:
            mounted = super().switch_mode(mode)
        finally:
            self._switches = False
        if isinstance(self.screen, SettlingScreen):
            self.screen.call_later(self.screen.come)
        else:
            self._let_anything_paint()
        return mounted

    def make_ahead(self) -> None:
        """Make one of the screens that nobody has seen yet, so that its key finds it made."""
        unseen = (mode for mode in self.MODES if mode not in self._screen_stacks)
        if (mode := next(unseen, None)) is not None:
            self._init_mode(mode)

    @property
    def holds_back(self) -> bool:
        """Whether a screen comes that has not settled."""
        return self._hold is not None

    def let_paint(self) -> None:
        """The screen that came has settled."""
        if self._hold is not None:
            self._hold.stop()
            self._hold = None
            self._end_batch()

    def _let_anything_paint(self) -> None:
        self.let_paint()
        self.screen.refresh()

    def delay_update(self, delay: float = 0.05) -> None:
        """Textual's guess of how long a switch takes."""
        if not self._switches:
            super().delay_update(delay)

    def _load_screen_css(self, screen: Screen[Any]) -> None:
        """What a screen brings is about itself; it is styled by it as it is mounted."""
        with cast("ParsedOnce", self.stylesheet).parsing_only():
            super()._load_screen_css(screen)
        self.stylesheet.apply(screen)
        screen._css_update_count = self._css_update_count


class SettlingScreen(Screen[None]):
    """A screen that says when it has settled."""

    def on_screen_resume(self, event: events.ScreenResume) -> None:
        """Its styles are those in force: where the theme has changed, switching applied it."""
        event.refresh_styles = False

    def show_now(self) -> None:
        """Show the state as it is."""

    def come(self) -> None:
        """It is the screen in sight from now on."""
        self.show_now()
        self._settle(_MOST_ROUNDS)

    @property
    def _comes(self) -> bool:
        return self.is_current and cast("SwitchingApp", self.app).holds_back

    def _settle(self, rounds: int) -> None:
        """Once every widget has answered what came until now, lay them out again if need be."""
        waited: set[Widget] = set()

        def answered(widget: Widget) -> None:
            widget._check_refresh()  # tells this screen of layouts that it needs
            waited.discard(widget)
            if not waited:
                self.call_later(self._lay_out, rounds)

        waited |= set(self.walk_children(Widget))
        gone = [one for one in waited if not one.call_later(answered, one)]
        waited.difference_update(gone)
        if not waited:
            self.call_later(self._lay_out, rounds)

    async def _lay_out(self, rounds: int) -> None:
        if not self._comes:
            return  # it took too long, or another screen is wanted
        if self._layout_required and rounds:
            self._layout_required = False
            self._refresh_layout()
            self._settle(rounds - 1)
        elif self._callbacks and rounds:
            await super()._invoke_and_clear_callbacks()
            self._settle(rounds - 1)
        else:
            self._repaint_required = True
            cast("SwitchingApp", self.app).let_paint()
            self._on_timer_update()

    async def _invoke_and_clear_callbacks(self) -> None:
        """What is to be done after a refresh wants to see how widgets are laid out."""
        if not self._comes:
            await super()._invoke_and_clear_callbacks()

    def _refresh_layout(self, size: Size | None = None, scroll: bool = False) -> None:
        """Textual wants another layout, and paint, after one in which any size has changed. Only a
        scroll bar that comes or goes moves anything, and that asks for itself."""
        before = {one: (one._layout_required, _bars(one)) for one in self.walk_children(Widget)}
        super()._refresh_layout(size, scroll)
        for widget in self._compositor.widgets:
            asked, bars = before.get(widget, (False, (False, False)))
            if not asked and _bars(widget) == bars:
                widget._layout_required = False

    def _compositor_refresh(self) -> None:
        """Paint, unless that is held back: what is drawn then would be thrown away."""
        if self.app._batch_count:
            self._repaint_required = True
        else:
            super()._compositor_refresh()


def _bars(widget: Widget) -> tuple[bool, bool]:
    return widget.show_vertical_scrollbar, widget.show_horizontal_scrollbar


_parsed: dict[tuple[object, ...], list[RuleSet]] = {}


class ParsedOnce(Stylesheet):
    """A stylesheet that knows the rules of each text in each theme."""

    _parses_only = False

    @contextmanager
    def parsing_only(self) -> Iterator[None]:
        """Take rules in without applying them to what is there."""
        self._parses_only = True
        try:
            yield
        finally:
            self._parses_only = False

    def update(self, root: DOMNode, animate: bool = False) -> None:
        if not self._parses_only:
            super().update(root, animate)

    def reparse(self) -> None:
        """Apply new variables. Raises StylesheetError, and the rules are as before."""
        self.parse()

    def _parse_rules(
        self,
        css: str,
        read_from: CSSLocation,
        is_default_rules: bool = False,
        tie_breaker: int = 0,
        scope: str = "",
    ) -> list[RuleSet]:
        theme = tuple(self._variables.items())
        key = (theme, css, read_from, is_default_rules, tie_breaker, scope)
        if (known := _parsed.get(key)) is None:
            known = super()._parse_rules(css, read_from, is_default_rules, tie_breaker, scope)
            _parsed[key] = known
        return known
