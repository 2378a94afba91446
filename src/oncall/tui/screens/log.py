"""The log: the story of the night, as the evidence tells it and as this console saw it; and the
lines of the job's own logs."""

from __future__ import annotations

from typing import Any, ClassVar

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll

from oncall.console.evidence_queries import GetLogLines, GetNight
from oncall.core.diagnosis import Severity
from oncall.render.text.lines import cell_len, padded, wrapped
from oncall.tui.drawing.literal import LiteralText
from oncall.tui.drawing.states import role_styles, theme_style
from oncall.tui.shell.actions import needs_snapshot
from oncall.tui.shell.keys import ActionEntry
from oncall.tui.shell.log import LogLine, matching
from oncall.tui.shell.messages import Copy, Refused
from oncall.tui.shell.screen import ConsoleScreen
from oncall.tui.shell.state import State
from oncall.tui.widgets.reading_list import Role
from oncall.views.night import LoggedLine, NightLine
from oncall.views.words import roots

_ROLES: dict[Severity, Role] = {"critical": "critical", "warning": "warning", "info": "plain"}

Part = tuple[str, list[LogLine]]  # a heading, and what is below it


class LogScreen(ConsoleScreen):
    """Lines of text, the newest last: the story of the night, or of the job's logs around the
    moment."""

    ACTIONS: ClassVar[tuple[ActionEntry[Any], ...]] = (
        ActionEntry("log.which", "v", "Job's log",
                    "Show the lines of the job's logs around this moment, or the story again.",
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
        self._logged: list[LogLine] = []
        self._night: list[LogLine] = []
        self._shown_parts: list[Part] | None = None

    def action_which(self) -> None:
        self._of_job = not self._of_job
        self._ask_for_lines(self.state)
        self._show_parts()

    def _ask_for_lines(self, state: State) -> None:
        """For what the evidence has to say here."""
        if (snapshot := state.snapshot) is None:
            return
        if not self._of_job:
            self.ask("night", GetNight(), self._take_night, "reading what happened")
            return
        causes = roots(snapshot.diagnosis)
        began_ns = causes[0].at_ns if causes else None
        at_ns = began_ns if state.cursor.follows else state.cursor.shown_ns
        self.ask("lines", GetLogLines(at_ns), self._take_logged, "reading logs")

    def _take_night(self, lines: tuple[NightLine, ...]) -> None:
        self._night = [LogLine(one.clock, one.text, one.severity) for one in lines]
        self._show_parts()

    def _take_logged(self, lines: tuple[LoggedLine, ...]) -> None:
        self._logged = [
            LogLine(one.clock, f"{one.source}  {one.text}", "critical" if one.problem else "info")
            for one in lines
        ]
        self._show_parts()

    def refused(self, message: Refused) -> None:
        self.tell(str(message.error))

    def show(self, state: State, before: State | None) -> None:
        if before is None or before.snapshot is not state.snapshot:
            self._ask_for_lines(state)
        self._show_parts()

    def _parts(self) -> list[Part]:
        if self._of_job:
            parts = [("The job's logs around this moment", self._logged)]
        else:
            parts = [
                ("What the evidence tells", self._night),
                ("What this console saw", [*self.app.log_lines]),
            ]
        return [(heading, matching(lines, self.state.filter)) for heading, lines in parts]

    def forget_shown(self) -> None:
        self._shown_parts = None
        super().forget_shown()

    def _show_parts(self) -> None:
        parts = self._parts()
        if parts == self._shown_parts:
            return
        self._shown_parts = parts
        text = Text()
        for heading, lines in parts:
            if lines:
                text.append("\n" if text else "")
                text.append(f"{heading}\n", theme_style(self.app, "primary", bold=True))
                text.append_text(self._drawn(lines))
        if not text and self._of_job:
            text.append("No line of any log was recorded.")
        scroll = self.query_one(VerticalScroll)
        at_end = scroll.max_scroll_y - scroll.scroll_y <= 1
        self.query_one("#lines", LiteralText).update(text)
        if at_end:
            scroll.scroll_end(animate=False)

    def _drawn(self, lines: list[LogLine]) -> Text:
        """Clocks at the left; what does not fit a line goes on below its beginning."""
        clocks = max(cell_len(one.clock) for one in lines) + 2
        room = max(self.size.width - clocks - 4, 20)
        text, styles = Text(), role_styles(self)
        for one in lines:
            style = styles[_ROLES[one.severity]]
            for number, part in enumerate(wrapped(one.text, room, 0)):
                clock = one.clock if not number else ""
                text.append(padded(clock, clocks), theme_style(self.app, "muted"))
                text.append(f"{part}\n", style)
        return text

    def on_resize(self, event: events.Resize) -> None:
        super().on_resize(event)
        self._shown_parts = None
        self._show_parts()

    def copies(self) -> list[Copy]:
        lines = [one for _, lines in self._parts() for one in lines]
        return [Copy("t", "text", "\n".join(f"{one.clock}  {one.text}" for one in lines))]

    def action_scroll(self, lines: int) -> None:
        self.query_one(VerticalScroll).scroll_relative(y=lines, animate=False)

    def action_ends(self, end: int) -> None:
        scroll = self.query_one(VerticalScroll)
        (scroll.scroll_end if end else scroll.scroll_home)(animate=False)
