"""A text over the screen, to scroll through and to leave."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen


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
