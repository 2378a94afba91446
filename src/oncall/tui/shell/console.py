"""What screens and the parts of the application may ask of it. `oncall.tui.app` is the rest."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from textual.app import App
from textual.screen import Screen

if TYPE_CHECKING:
    from oncall.tui.shell.action import ActionEntry
    from oncall.tui.shell.goto import Target
    from oncall.tui.shell.log import LogLine
    from oncall.tui.shell.messages import Copy, Question
    from oncall.tui.shell.state import State
    from oncall.tui.shell.workers import SessionThread


class Console(App[None]):
    """The application, as everything below it knows it.

    `clock` tells seconds, for what moves by itself; `wall_ns` the time of day. `known_moments`:
    when findings began, Unix ns, of all snapshots seen. `said` is in the status line.
    """

    state: State
    said: str
    ascii_only: bool
    log_lines: deque[LogLine]
    known_moments: set[int]
    clock: Callable[[], float]
    wall_ns: Callable[[], int]

    @property
    def session(self) -> SessionThread:
        """The threads that ask the session."""
        raise NotImplementedError

    @property
    def can_go_back(self) -> bool:
        """Whether `esc` leaves anything."""
        raise NotImplementedError

    def ask(self, question: Question) -> None:
        """Ask the session, as soon as it is free."""
        raise NotImplementedError

    def retry(self) -> None:
        """Try again what kept the jobs from being found."""
        raise NotImplementedError

    def open_job(self, job: str) -> None:
        """Choose a job, and show its snapshot."""
        raise NotImplementedError

    def judge_again(self) -> None:
        """Diagnose the same evidence once more, as its rulebooks have changed."""
        raise NotImplementedError

    def change(self, **fields: Any) -> None:
        """Change the state, and tell the screen in sight."""
        raise NotImplementedError

    def tell(self, text: str) -> None:
        """Say it in the status line, for a few seconds."""
        raise NotImplementedError

    def write_log(self, text: str, problem: bool = False) -> None:
        """A line in the log."""
        raise NotImplementedError

    def beat(self) -> None:
        """Show what changes by itself."""
        raise NotImplementedError

    def actions_of(self, screen: Screen[Any]) -> list[ActionEntry[Any]]:
        """What can be done on a screen: its own first."""
        raise NotImplementedError

    def show_screen(self, name: str) -> None:
        """Show a screen; `esc` comes back."""
        raise NotImplementedError

    def go_to(self, target: Target) -> None:
        """Show something, on the screen that shows such things."""
        raise NotImplementedError

    def copy(self, one: Copy) -> None:
        """Copy it, and say so."""
        raise NotImplementedError

    def theme_names(self) -> list[str]:
        """The themes there are."""
        raise NotImplementedError

    def choose_theme(self, name: str) -> None:
        """Show everything in other colours."""
        raise NotImplementedError
