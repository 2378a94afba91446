"""What can be tried with a rulebook's text, and harms nothing: a dry run, a fact, its tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oncall.console.session import Session
from oncall.tui.screens.rules.buffer import Buffer
from oncall.tui.screens.rules.draft_store import DraftStore
from oncall.tui.screens.rules.pane import RulePane
from oncall.tui.shell.messages import Answered
from oncall.tui.shell.screen import ConsoleScreen


class TrialScreen(ConsoleScreen):
    """A screen with a `RulePane` that shows what came of a trial."""

    def __init__(self) -> None:
        super().__init__()
        self._drafts = DraftStore()

    @property
    def buffer(self) -> Buffer | None:
        """The rulebook in the editor."""
        return self._drafts.buffer

    def fact(self) -> str | None:
        """The fact that the cursor of the editor is in."""
        return self._pane.fact()

    @property
    def _pane(self) -> RulePane:
        return self.query_one(RulePane)

    def _run(self, what: str, title: str, call: Callable[[Session, Buffer], Any]) -> None:
        """Ask something about the text as it is; what comes of it takes the place of the check."""
        if (buffer := self.buffer) is not None:
            self._pane.await_outcome(title)
            self.ask(what, lambda session: (buffer, call(session, buffer)), title)

    def action_dry_run(self) -> None:
        self._run("dry_run", "Dry run", lambda session, it: session.dry_run(it.name, it.text))

    def action_fact(self) -> None:
        if fact := self.fact():
            self._run(
                "fact", f"Fact {fact}", lambda each, it: each.run_fact(it.name, it.text, fact)
            )

    def action_tests(self) -> None:
        self._run("tests", "Tests", lambda session, it: session.test_rules(it.name, it.text))

    def show_trial(self, message: Answered) -> None:
        """What came of a fact or of tests; a dry run is also known to the buffer."""
        match message.question.group.partition(".")[2], message.value:
            case "fact", (_, rows):
                self._pane.show_rows(message.question.label, rows)
            case "tests", (buffer, results):
                self._pane.show_tests(buffer.name, results)
