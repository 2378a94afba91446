"""What the console asks about rulebooks: their text, and what a changed text would find."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from oncall.console.session import Answering, AnswerType, Query

if TYPE_CHECKING:
    from oncall.views.snapshot import DryRun, Problem, RuleLine, Table


@dataclass(frozen=True)
class ListRulebooks(Query["tuple[RuleLine, ...]"]):
    """The rulebooks in force, with their results."""

    def answer(self, session: Answering) -> tuple[RuleLine, ...]:
        shown = session.shown
        return session.rulebooks.lines(None if shown is None else shown.snapshot)


@dataclass(frozen=True)
class GetRulebookText(Query[str]):
    """A rulebook's YAML."""

    name: str

    def answer(self, session: Answering) -> str:
        return session.rulebooks.text(self.name)


@dataclass(frozen=True)
class NewRulebook(Query[str]):
    """The text of a new rulebook, to fill in."""

    name: str

    def answer(self, session: Answering) -> str:
        return session.rulebooks.new(self.name)


@dataclass(frozen=True)
class _OfText(Query[AnswerType]):
    """A query about a text of a rulebook."""

    name: str
    text: str


@dataclass(frozen=True)
class CheckRulebook(_OfText["tuple[Problem, ...]"]):
    """What is wrong with a text of a rulebook; nothing: it can run."""

    def answer(self, session: Answering) -> tuple[Problem, ...]:
        return session.rulebooks.check(self.text)


@dataclass(frozen=True)
class DryRunRulebook(_OfText["DryRun"]):
    """Which verdicts on the evidence shown would change if `text` took the rulebook's place."""

    def answer(self, session: Answering) -> DryRun:
        from oncall.console.rulebook_runs import dry_run
        from oncall.views.snapshot import DryRun

        if problems := session.rulebooks.check(self.text):
            return DryRun(problems)
        changed = session.rulebooks.changed(self.name, self.text)
        with session.question() as (shown, _):
            before = shown.snapshot.diagnosis.findings
            return dry_run(shown.incident, shown.rulebooks, changed, before)


@dataclass(frozen=True)
class RunFact(_OfText["Table"]):
    """The rows of one fact of a rulebook being edited."""

    fact: str

    def answer(self, session: Answering) -> Table:
        from oncall.console.rulebook_runs import fact_rows

        changed = session.rulebooks.tried(self.name, self.text)
        with session.question() as (shown, _):
            return fact_rows(shown.incident, changed, self.fact)


@dataclass(frozen=True)
class RunTests(_OfText["Table"]):
    """The rulebook's own tests on a text of it: name, result, and what differs."""

    def answer(self, session: Answering) -> Table:
        return session.rulebooks.test(self.name, self.text)


@dataclass(frozen=True)
class SaveRulebook(_OfText[Path]):
    """Write a text to the site's folder of rulebooks, never to the shipped one; returns the
    file."""

    def answer(self, session: Answering) -> Path:
        return session.rulebooks.save(self.name, self.text)
