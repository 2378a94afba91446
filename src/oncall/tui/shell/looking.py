"""What narrows or moves the reader's look: filter, faults only, go-to."""

from __future__ import annotations

from textual.widget import AwaitMount

from oncall.core.errors import UsageError
from oncall.tui.shell.goto import KINDS, Target, parse_target, places, why_not_there
from oncall.tui.shell.messages import GoTo
from oncall.tui.shell.registry import SCREENS
from oncall.tui.shell.screen import screen_in_sight
from oncall.tui.shell.timekeeping import Timekeeping
from oncall.tui.widgets.prompt import Prompt

_QUIT = {"q", "q!", "quit", "exit"}


class Looking(Timekeeping):
    """Filter, faults only, go-to."""

    def action_filter(self) -> AwaitMount:
        before = self.state.filter

        def left(text: str | None) -> None:
            self.change(filter=before if text is None else text.strip())

        def changed(text: str) -> None:
            self.change(filter=text.strip())

        return self.push_screen(
            Prompt("/", before, placeholder="only what contains this text", changed=changed),
            left,
        )

    def action_faults(self) -> None:
        self.change(faults_only=not self.state.faults_only)

    def action_go_to(self) -> AwaitMount:
        def left(text: str | None) -> None:
            if text is None:
                return
            if text.strip().lstrip(":") in _QUIT:
                self.call_next(self.run_action, "perform('leave')")
            else:
                self.go_to(self._target(text))

        hint = "  ".join((*KINDS, "q", "(tab completes)"))
        state = self.state
        words = places(state.snapshot, [line.job for line in state.jobs or ()])
        prompt = Prompt(":", hint=hint, problem_of=self._problem_of, words=words)
        return self.push_screen(prompt, left)

    def _target(self, text: str) -> Target:
        return parse_target(text, self.state.cursor.last_ns)

    def _problem_of(self, text: str) -> str | None:
        if text.strip().lstrip(":") in _QUIT:
            return None
        try:
            target = self._target(text)
        except UsageError as error:
            return str(error)
        if target.kind == "time":
            return None if self.state.cursor.movable else "the evidence has no timestamps"
        if not any(target.kind in entry.goes_to for entry in SCREENS):
            return f"no screen shows a {target.kind}"
        snapshot = self.state.snapshot
        return why_not_there(target, snapshot) if snapshot is not None else None

    def go_to(self, target: Target) -> None:
        """Go to a time, or to the screen that shows it: this one, if it does."""
        if target.kind == "time":
            self.jump(int(target.value))
            return
        showing = [entry.id for entry in SCREENS if target.kind in entry.goes_to]
        if self.current_mode not in showing:
            self.show_screen(showing[0])
        if (screen := screen_in_sight(self)) is not None:
            screen.post_message(GoTo(target))
