"""A suggested command, run for the reader: shown, confirmed, its output kept with the notes."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll

from oncall.console.queries import RunCommand
from oncall.core.printable import clean_lines
from oncall.tui.drawing.literal import LiteralText, literal
from oncall.tui.shell.messages import RUN, Answered, Question, Refused
from oncall.tui.widgets.overlay import Overlay

if TYPE_CHECKING:
    from oncall.fleet.read_only import RemoteCommand
    from oncall.tui.shell.console import Console


class RunScreen(Overlay):
    """Asks whether to run it, runs it as long as it is open, and shows what it printed."""

    BINDINGS: ClassVar[list[BindingType]] = [("enter", "run", "Run"), ("y", "copy", "Copy")]

    def __init__(self, command: str, runs: RemoteCommand, about: str) -> None:
        """`runs` is the command as its node gets it; `about` the finding that suggested it."""
        super().__init__()
        self._command = command
        self._node = runs.host
        self._runs = f"on {runs.host}:  {runs.line}"
        self._about = about
        self._begun = False
        self._printed: str | None = None

    @property
    def app(self) -> Console:  # type: ignore[override]
        return cast("Console", super().app)

    def compose(self) -> ComposeResult:
        with VerticalScroll() as pane:
            pane.border_title = literal(self._command)
            yield LiteralText()

    def on_mount(self) -> None:
        self._say(
            f"{self._runs}\n\nThis only reads. oncall runs it over its own connection to the node."
            " What it prints is kept with your notes and goes into the export.",
            "enter runs it, esc leaves",
        )

    def _say(self, text: str, keys: str) -> None:
        self.query_one(LiteralText).update(Text(text))
        self.query_one(VerticalScroll).border_subtitle = literal(keys)

    def action_run(self) -> None:
        if self._begun:
            return
        self._begun = True
        self._say(f"{self._runs}\n\nrunning …", "esc stops it")
        self.app.ask(
            Question(RUN, RunCommand(self._command, self._node), self, "running a command")
        )

    def on_answered(self, message: Answered) -> None:
        printed = "\n".join(clean_lines(str(message.value))) or "(it printed nothing)"
        self._printed = printed
        self._say(printed, "j k space g G move, y copies, esc leaves")
        self.app.keep("command", self._command, self._about, printed)

    def on_refused(self, message: Refused) -> None:
        self._begun = False
        self._say(f"It did not run: {message.error}", "enter tries again, esc leaves")

    def action_copy(self) -> None:
        if self._printed is not None:
            self.app.copy_to_clipboard(self._printed)
            self.app.tell("copied the output")

    def action_leave(self) -> None:
        if self._begun and self._printed is None:
            self.app.session.drop(RUN)
        super().action_leave()
