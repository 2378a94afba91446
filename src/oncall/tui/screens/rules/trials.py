"""What can be tried with a rulebook's text without harm: a dry run, a fact, its tests."""

from __future__ import annotations

from typing import Any

from oncall.console.rulebook_queries import (
    DryRunRulebook,
    RunFact,
    RunTests,
)
from oncall.console.session import Query
from oncall.tui.screens.rules.buffer import Buffer
from oncall.tui.screens.rules.draft_store import DraftStore
from oncall.tui.screens.rules.pane import RulePane
from oncall.tui.shell.messages import Answered
from oncall.tui.shell.screen import ConsoleScreen


class TrialScreen(ConsoleScreen):
    """A screen with a `RulePane` that shows the result of a trial."""

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

    def _run(self, what: str, title: str, query: Query[Any]) -> None:
        """Ask something about the text; the answer takes the place of the check."""
        self._pane.await_outcome(title)
        self.ask(what, query, title)

    def action_dry_run(self) -> None:
        if buffer := self.buffer:
            self._run("dry_run", "Dry run", DryRunRulebook(buffer.name, buffer.text))

    def action_fact(self) -> None:
        if (buffer := self.buffer) and (fact := self.fact()):
            self._run("fact", f"Fact {fact}", RunFact(buffer.name, buffer.text, fact))

    def action_tests(self) -> None:
        if buffer := self.buffer:
            self._run("tests", "Tests", RunTests(buffer.name, buffer.text))

    def show_trial(self, message: Answered) -> None:
        """The answer of a fact or of tests; a dry run is also known to the buffer."""
        match message.question.query:
            case RunFact():
                self._pane.show_rows(message.question.label, message.value)
            case RunTests(name):
                self._pane.show_tests(name, message.value)
