"""What screens and the parts of the application may ask of it. `oncall.tui.app` is the rest."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from textual.screen import Screen
from textual.widget import AwaitMount

from oncall.tui.drawing.abstract import AbstractMeta
from oncall.tui.shell.log import lines_of
from oncall.tui.shell.switching import SwitchingApp

if TYPE_CHECKING:
    from oncall.core.diagnosis import Severity
    from oncall.tui.shell.goto import Target
    from oncall.tui.shell.keys import ActionEntry
    from oncall.tui.shell.log import LogLine
    from oncall.tui.shell.messages import Copy, Question, SessionThread
    from oncall.tui.shell.notes import NoteKind
    from oncall.tui.shell.state import State
    from oncall.tui.widgets.prompt import Prompt


class Console(SwitchingApp, metaclass=AbstractMeta):
    """The application, as everything below it knows it.

    `clock` tells seconds, for what moves by itself; `wall_ns` the time of day. `known_moments`:
    when findings began, Unix ns, of all snapshots seen. `said` is in the status line. `once_read`
    is called when the first snapshot of a job has come.
    """

    state: State
    said: str
    log_lines: deque[LogLine]
    known_moments: set[int]
    clock: Callable[[], float]
    wall_ns: Callable[[], int]
    once_read: Callable[[], None]
    session: SessionThread

    @property
    @abstractmethod
    def can_go_back(self) -> bool:
        """Whether `esc` leaves anything."""

    def ask_line(self, prompt: Prompt, take: Callable[[str], object]) -> AwaitMount:
        """Ask the reader for a line; who leaves the prompt with `esc` gives none."""

        def left(text: str | None) -> None:
            if text is not None:
                take(text)

        return self.push_screen(prompt, left)

    def ask(self, question: Question[Any]) -> None:
        """Ask the session, as soon as it is free."""
        self.session.ask(question)

    def write_log(self, text: str, severity: Severity = "info") -> None:
        """Lines in the log."""
        clock = datetime.fromtimestamp(self.wall_ns() / 10**9, UTC).strftime("%H:%M:%S UTC")
        self.log_lines.extend(lines_of(clock, text, severity))

    @abstractmethod
    def open_job(self, job: str) -> None:
        """Choose a job, and show its snapshot."""

    @abstractmethod
    def judge_again(self) -> None:
        """Diagnose the same evidence once more, as its rulebooks have changed."""

    @abstractmethod
    def change(self, **fields: Any) -> None:
        """Change the state, and tell the screen in sight."""

    @abstractmethod
    def tell(self, text: str) -> None:
        """Say it in the status line, for a few seconds."""

    @abstractmethod
    def keep(self, kind: NoteKind, text: str, about: str, output: str = "") -> None:
        """Keep something with the notes about this incident."""

    @abstractmethod
    def show_passing(self) -> None:
        """Show what changes by itself."""

    @abstractmethod
    def actions_of(self, screen: Screen[Any]) -> list[ActionEntry[Any]]:
        """What can be done on a screen: its own first."""

    @abstractmethod
    def show_screen(self, name: str) -> None:
        """Show a screen; `esc` comes back."""

    @abstractmethod
    def go_to(self, target: Target) -> None:
        """Show something, on the screen that shows such things."""

    @abstractmethod
    def copy(self, one: Copy) -> None:
        """Copy it, and say so."""

    @abstractmethod
    def choose_theme(self, name: str) -> None:
        """Show everything in other colours."""
