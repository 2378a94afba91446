"""What narrows or moves the reader's look: filter, faults only, go-to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.widget import AwaitMount

from oncall.core.errors import UsageError
from oncall.tui.shell.goto import KINDS, Target, parse_target
from oncall.tui.shell.messages import GoTo
from oncall.tui.shell.places import places, why_not_there
from oncall.tui.shell.registry import SCREENS
from oncall.tui.shell.screen import screen_in_sight
from oncall.tui.widgets.prompt import Prompt

if TYPE_CHECKING:
    from oncall.tui.shell.console import Console
    from oncall.tui.shell.timekeeping import Timekeeping


_QUIT = {"q", "q!", "quit", "exit"}


class Looking:
    """Filter, faults only, go-to."""

    def __init__(self, app: Console, timekeeping: Timekeeping) -> None:
        self._app = app
        self._timekeeping = timekeeping

    def action_filter(self) -> AwaitMount:
        before = self._app.state.filter

        def left(text: str | None) -> None:
            self._app.change(filter=before if text is None else text.strip())

        def changed(text: str) -> None:
            self._app.change(filter=text.strip())

        return self._app.push_screen(
            Prompt("/", before, placeholder="only what contains this text", changed=changed),
            left,
        )

    def action_faults(self) -> None:
        self._app.change(faults_only=not self._app.state.faults_only)

    def action_go_to(self) -> AwaitMount:
        def left(text: str | None) -> None:
            if text is None:
                return
            if text.strip().lstrip(":") in _QUIT:
                self._app.call_next(self._app.run_action, "perform('leave')")
            else:
                self.go(self._target(text))

        hint = "  ".join((*KINDS, "q", "(tab completes)"))
        state = self._app.state
        words = places(state.snapshot, [line.job for line in state.jobs or ()])
        prompt = Prompt(":", hint=hint, problem_of=self._problem_of, words=words)
        return self._app.push_screen(prompt, left)

    def _target(self, text: str) -> Target:
        return parse_target(text, self._app.state.cursor.last_ns)

    def _problem_of(self, text: str) -> str | None:
        if text.strip().lstrip(":") in _QUIT:
            return None
        try:
            target = self._target(text)
        except UsageError as error:
            return str(error)
        if target.kind == "time":
            return None if self._app.state.cursor.movable else "the evidence has no timestamps"
        if not any(target.kind in entry.goes_to for entry in SCREENS):
            return f"no screen shows a {target.kind}"
        snapshot = self._app.state.snapshot
        return why_not_there(target, snapshot) if snapshot is not None else None

    def go(self, target: Target) -> None:
        """Go to a time, or to the screen that shows it: this one, if it does."""
        if target.kind == "time":
            self._timekeeping.jump(int(target.value))
            return
        showing = [entry.id for entry in SCREENS if target.kind in entry.goes_to]
        if self._app.current_mode not in showing:
            self._app.show_screen(showing[0])
        if (screen := screen_in_sight(self._app)) is not None:
            screen.post_message(GoTo(target))
