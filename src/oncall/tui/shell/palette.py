"""The command palette's entries: every action that can be done here, and every theme."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, cast

from textual.command import DiscoveryHit, Hit, Hits, Provider

from oncall.tui.drawing.literal import literal_content

if TYPE_CHECKING:
    from oncall.tui.shell.console import Console
    from oncall.tui.shell.screen import ConsoleScreen


class Actions(Provider):
    """Actions of the screen the palette was opened on. What cannot be done says why."""

    def _entries(self) -> list[tuple[str, str, partial[Any]]]:
        app = cast("Console", self.app)
        screen = cast("ConsoleScreen", self.screen)
        entries: list[tuple[str, str, partial[Any]]] = []
        for entry in app.actions_of(screen):
            if entry.id == "palette":
                continue
            why = entry.why_not(screen)
            text = f"not now: {why}" if why else entry.description
            entries.append((entry.title, text, partial(app.run_action, f"perform('{entry.id}')")))
        for theme in app.theme_names():
            does = partial(app.choose_theme, theme)
            entries.append((f"Theme {theme}", "Change the colours.", does))
        return entries

    async def discover(self) -> Hits:
        for title, text, does in self._entries():
            yield DiscoveryHit(title, does, help=_help(text))

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for title, text, does in self._entries():
            if (score := max(matcher.match(title), matcher.match(text) / 2)) > 0:
                yield Hit(score, matcher.highlight(title), does, help=_help(text))


def _help(text: str) -> str:
    """What textual shows without looking for markup in it, though it declares a str."""
    return cast("str", literal_content(text))
