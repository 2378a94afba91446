"""`?`: what the screen shows, and every key that does something here, or why it does not."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from oncall.tui.keys import key_phrase, keys_by_id
from oncall.tui.registry import ActionEntry
from oncall.tui.states import STATES, state_styles

if TYPE_CHECKING:
    from oncall.tui.screen import ConsoleScreen

_KEYS_WIDTH = 12


class HelpScreen(ModalScreen[None]):
    """The help of the screen below it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape,question_mark,q,f1", "app.pop_screen", "Leave"),
        ("j,down", "scroll(1)", "Down"),
        ("k,up", "scroll(-1)", "Up"),
    ]

    def __init__(self, about: ConsoleScreen) -> None:
        super().__init__()
        self._about = about

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="help"):
            yield Static(help_text(self._about))

    def action_scroll(self, lines: int) -> None:
        self.query_one(VerticalScroll).scroll_relative(y=lines, animate=False)


def help_text(screen: ConsoleScreen) -> Text:
    """What the screen and the focused widget are for, their keys, and everybody's."""
    app = screen.app
    text = Text()
    text.append(f"{screen.entry.title}\n", "bold")
    text.append(f"{screen.entry.shows}\n")
    for widget in screen.focus_chain_help():
        text.append(f"{widget}\n")
    keys = keys_by_id(screen)
    entries = app.actions_of(screen)
    own = [entry for entry in entries if not entry.of_app]
    if own:
        text.append("\nHere\n", "bold")
        text.append_text(_lines(own, keys, screen))
    text.append("\nEverywhere\n", "bold")
    text.append_text(_lines([entry for entry in entries if entry.of_app], keys, screen))
    text.append("\nRanks\n", "bold")
    for look, style in zip(STATES, state_styles(app), strict=True):
        text.append(f"  {look.letter:<{_KEYS_WIDTH}}", style)
        text.append(f"{look.name}: {look.says}\n")
    text.append("\nArrows or h j k l move, g and G go to the ends, enter opens, tab changes the ")
    text.append("pane. Keys are remapped by id under [keys] in config.toml.\n")
    return text


def _lines(entries: list[ActionEntry], keys: dict[str, list[str]], screen: ConsoleScreen) -> Text:
    text = Text()
    for entry in entries:
        if entry.id not in keys:
            continue
        shown = " ".join(key_phrase(key) for key in keys[entry.id])
        why = entry.why_not(screen)
        text.append(f"  {shown:<{_KEYS_WIDTH}}", "dim" if why else "bold")
        text.append(entry.description, "dim" if why else "")
        text.append(f"  [{entry.id}]", "dim")
        text.append(f"\n  {'':<{_KEYS_WIDTH}}not now: {why}\n" if why else "\n", "dim")
    return text
