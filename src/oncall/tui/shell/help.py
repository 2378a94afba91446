"""`?` and the command palette: what the screen shows, and every action that does something here, or
why it does not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, cast

from rich.console import Group
from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.containers import VerticalScroll

from oncall.tui.drawing.literal import LiteralText, literal, literal_content
from oncall.tui.drawing.states import STATES, THEMES, state_styles
from oncall.tui.shell.keys import ActionEntry, key_phrase, keys_by_id
from oncall.tui.widgets.prompt import Overlay

if TYPE_CHECKING:
    from oncall.tui.shell.console import Console
    from oncall.tui.shell.screen import ConsoleScreen

_KEYS_WIDTH = 12


class HelpScreen(Overlay):
    """The help of the screen below it."""

    BINDINGS: ClassVar[list[BindingType]] = [("question_mark,f1", "leave", "Leave")]

    def __init__(self, about: ConsoleScreen) -> None:
        super().__init__()
        self._about = about

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="help") as pane:
            pane.border_subtitle = literal("j k space g G move, esc leaves")
            yield LiteralText(Group(*help_parts(self._about)))


def help_parts(screen: ConsoleScreen) -> Iterator[Text | Table]:
    """What the screen and the focused widget are for, their keys, and everybody's; what cannot be
    done now stands at the end, by the reason."""
    yield Text.assemble((screen.entry.title, "bold"), f"\n{screen.entry.shows}")
    for said in screen.focus_chain_help():
        yield literal(said)
    keys = keys_by_id(screen)
    possible: dict[str, list[ActionEntry[Any]]] = {"Here": [], "Everywhere": []}
    impossible: dict[str, list[ActionEntry[Any]]] = {}
    for entry in screen.app.actions_of(screen):
        if entry.id in keys:
            if why := entry.why_not(screen):
                impossible.setdefault(f"Not now: {why}", []).append(entry)
            else:
                possible["Everywhere" if entry.of_app else "Here"].append(entry)
    for heading, entries in [*possible.items(), *impossible.items()]:
        if entries:
            yield literal(Text(f"\n{heading}", "bold"))
            yield _keys(entries, keys, dim=heading in impossible)
    yield Text("\nRanks", "bold")
    yield _legend(screen)
    yield Text(
        "\nArrows or h j k l move, g and G go to the ends, enter opens, tab switches panes.\n"
        "Words in brackets are action ids; use them to remap keys under [keys] in config.toml.",
    )


def _table() -> Table:
    table = Table.grid(padding=(0, 2), pad_edge=True)
    table.add_column(min_width=_KEYS_WIDTH, no_wrap=True)
    table.add_column()
    return table


def _keys(entries: list[ActionEntry[Any]], keys: Mapping[str, list[str]], dim: bool) -> Table:
    table = _table()
    for entry in entries:
        shown = " ".join(key_phrase(key) for key in keys[entry.id])
        text = Text.assemble((entry.description, "dim" if dim else ""), (f" [{entry.id}]", "dim"))
        table.add_row(Text(shown, "dim" if dim else "bold"), literal(text))
    return table


def _legend(screen: ConsoleScreen) -> Table:
    table = _table()
    for look, style in zip(STATES, state_styles(screen.app), strict=True):
        table.add_row(Text(look.letter, style), literal(f"{look.name}: {look.says}"))
    return table


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
        for theme in THEMES:
            does = partial(app.choose_theme, theme.name)
            entries.append((f"Theme {theme.name}", "Change the colours.", does))
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
