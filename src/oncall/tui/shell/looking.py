"""What narrows or moves the reader's look (filter, faults only, go-to), and `y`, which takes it
along: to the clipboard of the terminal, which over SSH is the reader's own (OSC 52)."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping

from textual.widget import AwaitMount

from oncall.core.errors import UsageError
from oncall.core.units import format_bytes
from oncall.tui.shell.asking import Asking
from oncall.tui.shell.goto import KINDS, Target, parse_target, places, why_not_there
from oncall.tui.shell.messages import Copy, GoTo, Question
from oncall.tui.shell.registry import SCREENS
from oncall.tui.shell.screen import screen_in_sight
from oncall.tui.widgets.prompt import Choice, Prompt

_QUIT = {"q", "q!", "quit", "exit"}


_SCREEN_CHUNK = 250  # GNU screen passes on at most 256 bytes at a time


def osc52(text: str, environment: Mapping[str, str] = os.environ) -> str:
    """What tells a terminal to take `text` into its clipboard.

    GNU screen knows no OSC 52 and must be asked to pass it through; tmux knows it.
    """
    encoded = base64.b64encode(text.encode(errors="replace")).decode()
    sequence = f"\x1b]52;c;{encoded}\x07"
    if "STY" not in environment:
        return sequence
    parts = (sequence[i : i + _SCREEN_CHUNK] for i in range(0, len(sequence), _SCREEN_CHUNK))
    return "".join(f"\x1bP{part}\x1b\\" for part in parts)


class Looking(Asking):
    """Filter, faults only, go-to; and copies what the screen offers."""

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
        def take(text: str) -> None:
            if text.strip().lstrip(":") in _QUIT:
                self.call_next(self.run_action, "perform('leave')")
            else:
                self.go_to(self._target(text))

        hint = "  ".join((*KINDS, "q", "(tab completes)"))
        state = self.state
        words = places(state.snapshot, [line.job for line in state.jobs or ()])
        prompt = Prompt(":", hint=hint, problem_of=self._problem_of, words=words)
        return self.ask_line(prompt, take)

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

    # ----------------------------------------------------------------------- copying

    def action_copy(self) -> AwaitMount | None:
        screen = screen_in_sight(self)
        copies = screen.copies() if screen is not None else ()
        if len(copies) == 1:
            self.copy(copies[0])
            return None

        def chosen(key: str | None) -> None:
            for one in copies:
                if one.key == key:
                    self.copy(one)

        return self.push_screen(Choice("Copy", [(one.key, one.title) for one in copies]), chosen)

    def copy(self, one: Copy) -> None:
        """Copy it, asking the session for it if need be."""

        def take(text: str) -> None:
            if not text.strip():
                self.tell(f"nothing copied: {one.title} is empty")
                return
            self.copy_to_clipboard(text)
            self.tell(f"copied {one.title}, {format_bytes(len(text.encode()))}")

        if isinstance(one.text, str):
            take(one.text)
        else:
            self.ask(Question("copy", one.text, self, "writing", take))
