"""The rows behind the step under the cursor, read once the cursor rests on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from textual.timer import Timer

from oncall.tui.models.rows import step_view
from oncall.tui.screens.incident.step_pane import StepPane
from oncall.tui.shell.messages import Refused
from oncall.views.snapshot import StepRows

_AFTER_S = 0.15  # of rest on a step: scrolling through the reasoning asks for nothing


@dataclass(frozen=True)
class StepAt:
    """A step of a finding, the fact that its rows should be of, and in which snapshot."""

    finding: str
    index: int
    fact: str
    snapshot: int


class RowsBehind:
    """Keeps the pane at the step that is wanted; `ask` asks the session for its rows."""

    def __init__(self, pane: StepPane, ask: Callable[[StepAt], None]) -> None:
        self._pane = pane
        self._ask = ask
        self._wanted: StepAt | None = None
        self._asking: Timer | None = None

    def want(self, step: StepAt) -> None:
        """Soon, unless another is wanted before; not again what is there or on its way."""
        if step == self._wanted or not self._pane.display:
            return
        self._wanted = step
        if self._pane.view is None:
            self._pane.say("reading the rows …")
        if self._asking is not None:
            self._asking.stop()
        self._asking = self._pane.set_timer(_AFTER_S, lambda: self._ask(step))

    def leave(self) -> None:
        """What is shown now has no steps."""
        self._wanted = None
        self._pane.say("Select a step to see the rows of evidence behind it.")

    def answered(self, behind: StepRows) -> None:
        """Rows of another fact are those of a finding that took this one's number meanwhile."""
        if self._wanted is not None and behind.fact == self._wanted.fact:
            self._pane.show(step_view(behind))

    def refused(self, message: Refused) -> None:
        self._wanted = None
        self._pane.say(f"cannot read the rows: {message.error}")
