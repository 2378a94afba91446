"""What stands over a screen: a line to type into, a short list to choose from, a text to scroll."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from rich.text import Text
from textual import events, on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.suggester import SuggestFromList
from textual.widgets import Input

from oncall.core.printable import short
from oncall.render.text.lines import cell_len, cut
from oncall.tui.drawing.literal import LiteralText

_MOST_ALIKE = 40  # words listed that begin as the line does, as far as they fit


class _Question(ModalScreen[str | None]):
    """Something to answer, or to leave with `esc`."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape", "leave", "Leave"),
        ("ctrl+q", "app.quit", "Quit"),
    ]

    def leave_with(self, answer: str | None) -> None:
        """Close with the answer; what is typed after that comes too late."""
        if self.is_current:
            self.dismiss(answer)

    def action_leave(self) -> None:
        self.leave_with(None)


class Prompt(_Question):
    """Asks for a line; None if the reader left with `esc`.

    `problem_of` says what is wrong with a line, which then is not taken; `changed` hears of
    every change. `words`: what a line may be; those that begin as it does are listed above it, and
    tab goes from one to the next.
    """

    BINDINGS: ClassVar[list[BindingType]] = [("tab", "complete", "Complete")]

    def __init__(
        self,
        label: str,
        value: str = "",
        *,
        hint: str = "",
        placeholder: str = "",
        problem_of: Callable[[str], str | None] = lambda _: None,
        changed: Callable[[str], None] = lambda _: None,
        words: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self._words = words
        self._typed = value  # by the reader
        self._completed = ""  # by tab, from that
        self._label = label
        self._value = value
        self._hint = hint
        self._placeholder = placeholder
        self._problem_of = problem_of
        self._changed = changed

    def compose(self) -> ComposeResult:
        with Vertical(id="prompt"):
            yield LiteralText(id="prompt-hint")
            with Horizontal():
                yield LiteralText(self._label, id="prompt-label")
                yield Input(
                    self._value,
                    placeholder=self._placeholder,
                    select_on_focus=False,
                    suggester=SuggestFromList(self._words, case_sensitive=False),
                )

    def on_mount(self) -> None:
        self._say(self._hint)
        # At once: what is typed ahead of the next frame belongs to the line.
        self.set_focus(self.query_one(Input), scroll_visible=False)

    def _alike(self) -> list[str]:
        """The words that begin with what was typed."""
        typed = self._typed.casefold()
        return [word for word in self._words if typed and word.casefold().startswith(typed)]

    def action_complete(self) -> None:
        """From word to word, the first one again after the last."""
        line, alike = self.query_one(Input), self._alike()
        if alike:
            at = alike.index(line.value) + 1 if line.value in alike else 0
            line.value = self._completed = alike[at % len(alike)]
            line.cursor_position = len(line.value)

    @on(Input.Changed)
    def _tell_change(self, event: Input.Changed) -> None:
        if event.value != self._completed:
            self._typed = event.value
        alike = "  ".join(self._alike()[:_MOST_ALIKE])
        self._say(cut(alike, self.size.width - 2) or self._hint)
        self._changed(event.value)

    @on(Input.Submitted)
    def _take(self, event: Input.Submitted) -> None:
        if problem := self._problem_of(event.value):
            self._say(problem)
        else:
            self.leave_with(event.value)

    def _say(self, text: str) -> None:
        """A line above what is typed; with nothing to say there is none."""
        hint = self.query_one("#prompt-hint", LiteralText)
        hint.display = bool(text)
        hint.update(Text(text))


class Choice(_Question):
    """Asks for one of a few keys; None if the reader left with `esc`."""

    def __init__(self, label: str, choices: Sequence[tuple[str, str]]) -> None:
        super().__init__()
        self._label = label
        self._choices = choices

    def compose(self) -> ComposeResult:
        with Vertical(id="prompt"):
            yield LiteralText(id="choices")

    def on_resize(self) -> None:
        """On as many lines as it takes; a key and what it chooses are on one."""
        lines = [Text(f"{self._label}  ")]
        for key, title in [*self._choices, ("esc", "cancel")]:
            choice = Text.assemble((key, "bold"), f" {short(title)}".rstrip(), "   ")
            if lines[-1].cell_len + cell_len(choice.plain.rstrip()) > self.size.width - 2:
                lines.append(Text())
            lines[-1].append_text(choice)
        self.query_one("#choices", LiteralText).update(Text("\n").join(lines))

    def on_key(self, event: events.Key) -> None:
        if any(event.character == key for key, _ in self._choices):
            event.stop()
            self.leave_with(event.character)


class Overlay(ModalScreen[None]):
    """Whoever derives from it composes one VerticalScroll."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape,q", "leave", "Leave"),
        ("ctrl+q", "app.quit", "Quit"),
        ("j,down", "scroll(1)", "Down"),
        ("k,up", "scroll(-1)", "Up"),
        ("space,ctrl+f,pagedown", "page(1)", "Page down"),
        ("b,ctrl+b,pageup", "page(-1)", "Page up"),
        ("g,home", "edge(-1)", "First"),
        ("G,upper_g,end", "edge(1)", "Last"),
    ]

    def action_leave(self) -> None:
        if self.is_current:
            self.dismiss()

    def action_scroll(self, lines: int) -> None:
        self.query_one(VerticalScroll).scroll_relative(y=lines, animate=False)

    def action_page(self, way: int) -> None:
        pane = self.query_one(VerticalScroll)
        pane.scroll_relative(y=way * max(pane.size.height - 1, 1), animate=False)

    def action_edge(self, way: int) -> None:
        pane = self.query_one(VerticalScroll)
        pane.scroll_to(y=0 if way < 0 else pane.max_scroll_y, animate=False)
