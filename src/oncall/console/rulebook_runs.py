"""What rulebooks find in the evidence on the screen: rows behind a step, of a fact, a dry run."""

from __future__ import annotations

from collections.abc import Sequence

from oncall.core.diagnosis import Finding
from oncall.core.errors import OncallError, UsageError
from oncall.evidence.incident import Incident
from oncall.rules.engine.evaluate import Evaluation, FactFailed
from oncall.rules.language.rulebook import Rulebook
from oncall.use_case.diagnose import diagnose
from oncall.views.snapshot import DryRun, StepRows, Table
from oncall.views.words import case_phrase, who

MOST_ROWS = 200


def step_rows(
    incident: Incident, rulebooks: Sequence[Rulebook], finding: Finding, step: int, limit: int
) -> StepRows:
    """The rows behind a step of the finding, computed anew; `total` is exact.

    They are of the case that the step tells of: an effect's, where a cause's story begins with it.
    Raises UsageError where that case does not start (any more), FactFailed, MissingEvidence.
    """
    answered = finding.story[step]
    wanted = answered.rows_of
    if wanted is None:
        raise UsageError(f"no rows are behind step {step + 1} of {finding.id}")
    rulebook = _named(rulebooks, wanted.rulebook)
    incident.replace_parameters(rulebook.of_relations)
    with Evaluation(incident, rulebook) as evaluation:
        if wanted.case not in evaluation.cases:
            raise UsageError(f"the evidence no longer contains the case of {finding.id}")
        columns, rows, total = evaluation.sample_of(
            answered.fact, wanted.case, limit, wanted.having
        )
    table = Table(columns, tuple(rows), total)
    return StepRows(finding.id, step, answered.fact, answered.sql, answered.params, table)


def fact_rows(incident: Incident, rulebook: Rulebook, fact: str, limit: int = MOST_ROWS) -> Table:
    """The first rows of one fact, all cases together.

    Raises UsageError where there is none of that name, FactFailed, MissingEvidence.
    """
    if fact not in rulebook.book.facts:
        raise UsageError(f"{rulebook.name} has no fact `{fact}`")
    incident.replace_parameters(rulebook.of_relations)
    with Evaluation(incident, rulebook) as evaluation:
        if evaluation.cases or fact == rulebook.book.start_fact:
            columns, rows = evaluation.sample(fact, limit)
            return Table(columns, tuple(rows), evaluation.total(fact))
        # Nothing started: what comes after has no `started` to read, and what comes before has.
        try:
            columns, rows = evaluation.sample(fact, limit)
        except FactFailed as error:
            raise UsageError(f"{fact} was not computed: no case starts") from error
        return Table(columns, tuple(rows), evaluation.total(fact))


def dry_run(
    incident: Incident, rulebooks: Sequence[Rulebook], changed: Rulebook, before: Sequence[Finding]
) -> DryRun:
    """The verdicts with `changed` in its place (or added) against those `before`.

    All rulebooks run: a changed one may explain, or stop explaining, what others find.
    """
    books = [changed if book.name == changed.name else book for book in rulebooks]
    if changed not in books:
        books.append(changed)
    diagnosis = diagnose(incident, books)
    for skipped in diagnosis.coverage.skipped_rules:
        if skipped.rule.split(".")[0] == changed.name and skipped.failed:
            raise OncallError(f"{skipped.rule}: {skipped.why}")
    was, now = _sentences(before), _sentences(diagnosis.findings)
    return DryRun(
        gained=tuple(one for one in now if one not in was),
        lost=tuple(one for one in was if one not in now),
        kept=tuple(one for one in now if one in was),
    )


def _sentences(findings: Sequence[Finding]) -> tuple[str, ...]:
    """`hang H1: rank 5 on gpu017 (comm 0x1f2e, seq 13)`, in the order of the findings."""
    root = {finding.id: finding for finding in findings}
    lines = []
    for finding in findings:
        line = f"{finding.rulebook} {finding.verdict}: {who(finding.blame)}"
        if case := case_phrase(finding.case):
            line += f" ({case})"
        if cause := root.get(finding.explained_by or ""):
            line += f", explained by {cause.rulebook} {cause.verdict}"
        lines.append(line)
    return tuple(dict.fromkeys(lines))


def _named(rulebooks: Sequence[Rulebook], name: str) -> Rulebook:
    for rulebook in rulebooks:
        if rulebook.name == name:
            return rulebook
    raise UsageError(f"rulebook {name} is no longer in use")
