"""The log: the story of the night as this console saw it, and the lines of the job's own logs."""

from __future__ import annotations

from typing import Any, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll

from oncall.console.queries import GetLogLines
from oncall.tui.drawing.literal import LiteralText
from oncall.tui.drawing.states import theme_style
from oncall.tui.shell.action import ActionEntry
from oncall.tui.shell.actions import needs_snapshot
from oncall.tui.shell.log import LogLine, matching
from oncall.tui.shell.messages import Answered, Copy, Refused
from oncall.tui.shell.screen import ConsoleScreen
from oncall.tui.shell.state import State
from oncall.views.words import roots


class LogScreen(ConsoleScreen):
    """Lines of text, the newest last: of this console, or of the job's logs around the moment."""

    ACTIONS: ClassVar[tuple[ActionEntry[Any], ...]] = (
        ActionEntry("log.which", "v", "Job's log",
                    "Show the lines of the job's logs around this moment, or this console's again.",
                    needs_snapshot, bar=True),
    )  # fmt: skip

    BINDINGS: ClassVar[list[BindingType]] = [
        ("j", "scroll(1)", "Down"),
        ("k", "scroll(-1)", "Up"),
        ("g", "ends(0)", "Top"),
        ("G", "ends(1)", "End"),
    ]

    def compose_body(self) -> ComposeResult:
        with VerticalScroll(id="log"):
            yield LiteralText(id="lines")

    def on_mount(self) -> None:
        self._of_job = False
        self._logged: tuple[LogLine, ...] = ()
        self._shown_lines: list[LogLine] | None = None

    def action_which(self) -> None:
        self._of_job = not self._of_job
        if self._of_job:
            self._ask_lines(self.state)
        self._show_lines()

    def _ask_lines(self, state: State) -> None:
        snapshot = state.snapshot
        causes = roots(snapshot.diagnosis) if snapshot is not None else ()
        began_ns = causes[0].at_ns if causes else None
        at_ns = began_ns if state.cursor.follows else state.cursor.shown_ns
        self.ask("lines", GetLogLines(at_ns), "reading logs")

    def on_answered(self, message: Answered) -> None:
        self._logged = tuple(
            LogLine(one.clock, f"{one.source}  {one.text}", one.problem) for one in message.value
        )
        self._show_lines()

    def on_refused(self, message: Refused) -> None:
        self.tell(str(message.error))

    def show(self, state: State, before: State | None) -> None:
        if self._of_job and before is not None and before.snapshot is not state.snapshot:
            self._ask_lines(state)
        self._show_lines()

    def _lines_now(self) -> list[LogLine]:
        return matching(self._logged if self._of_job else self.app.log_lines, self.state.filter)

    def forget_shown(self) -> None:
        self._shown_lines = None
        super().forget_shown()

    def _show_lines(self) -> None:
        lines = self._lines_now()
        if lines == self._shown_lines:
            return
        self._shown_lines = lines
        text = Text() if lines or not self._of_job else Text("no line of any log was recorded")
        for line in lines:
            style = theme_style(self.app, "error" if line.problem else "foreground")
            text.append(f"{line.clock}  ", theme_style(self.app, "muted"))
            text.append(f"{line.text}\n", style)
        scroll = self.query_one(VerticalScroll)
        at_end = scroll.max_scroll_y - scroll.scroll_y <= 1
        self.query_one("#lines", LiteralText).update(text)
        if at_end:
            scroll.scroll_end(animate=False)

    def copies(self) -> list[Copy]:
        lines = self._lines_now()
        return [Copy("t", "text", "\n".join(f"{one.clock}  {one.text}" for one in lines))]

    def action_scroll(self, lines: int) -> None:
        self.query_one(VerticalScroll).scroll_relative(y=lines, animate=False)

    def action_ends(self, end: int) -> None:
        scroll = self.query_one(VerticalScroll)
        (scroll.scroll_end if end else scroll.scroll_home)(animate=False)
