"""`?`: what the screen shows, and every key that does something here, or why it does not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from rich.console import Group
from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll

from oncall.tui.drawing.literal import LiteralText, literal
from oncall.tui.drawing.states import STATES, state_styles
from oncall.tui.shell.action import ActionEntry
from oncall.tui.shell.keys import key_phrase, keys_by_id
from oncall.tui.widgets.overlay import Overlay

if TYPE_CHECKING:
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
