"""The log: what happened in this console."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll

from oncall.tui.drawing.literal import LiteralText
from oncall.tui.drawing.states import theme_style
from oncall.tui.shell.log import matching
from oncall.tui.shell.messages import Copy
from oncall.tui.shell.screen import ConsoleScreen
from oncall.tui.shell.state import State


class LogScreen(ConsoleScreen):
    """Lines of text, the newest last."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("j", "scroll(1)", "Down"),
        ("k", "scroll(-1)", "Up"),
        ("g", "ends(0)", "Top"),
        ("G", "ends(1)", "End"),
    ]

    def compose_body(self) -> ComposeResult:
        with VerticalScroll(id="log"):
            yield LiteralText(id="lines")

    def show(self, state: State, before: State | None) -> None:  # noqa: ARG002
        text = Text()
        for line in matching(self.app.log_lines, state.filter):
            style = theme_style(self.app, "error" if line.problem else "foreground")
            text.append(f"{line.clock}  ", theme_style(self.app, "muted"))
            text.append(f"{line.text}\n", style)
        scroll = self.query_one(VerticalScroll)
        at_end = scroll.max_scroll_y - scroll.scroll_y <= 1
        self.query_one("#lines", LiteralText).update(text)
        if at_end:
            scroll.scroll_end(animate=False)

    def copies(self) -> list[Copy]:
        lines = matching(self.app.log_lines, self.state.filter)
        return [Copy("t", "text", "\n".join(f"{one.clock}  {one.text}" for one in lines))]

    def action_scroll(self, lines: int) -> None:
        self.query_one(VerticalScroll).scroll_relative(y=lines, animate=False)

    def action_ends(self, end: int) -> None:
        scroll = self.query_one(VerticalScroll)
        (scroll.scroll_end if end else scroll.scroll_home)(animate=False)
