"""Run rulebooks over an incident: start, walk the tree with all cases at once, write findings."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from oncall.core.diagnosis import Answer, Finding, SkippedRule, strength
from oncall.core.errors import MissingEvidence, RelationFailed
from oncall.evidence.incident import Incident
from oncall.evidence.schema import data_of
from oncall.rules.engine.confined import Confined
from oncall.rules.engine.evaluate import Case, Evaluation, FactFailed, NotKnown
from oncall.rules.engine.sandbox import FACT_TIME_LIMIT_S, MEMORY_LIMIT_BYTES, close_sandbox
from oncall.rules.engine.story import Taken, Turn, Way, findings_of
from oncall.rules.language.load import apply_overrides
from oncall.rules.language.rulebook import Rulebook
from oncall.rules.language.rulebook_file import NO_VERDICT, Leaf, Node, Switch, codes_of

# One row group of DuckDB; below, planning a query takes longer than running it.
FEW_ROWS = 122_880


@dataclass(frozen=True)
class Trace:
    """How one case went through one rulebook: the names of the questions with their answers.
    `verdict` is None where the tree could not go on."""

    rulebook: str
    case: Case
    path: tuple[tuple[str, Answer], ...]
    verdict: str | None


@dataclass(frozen=True)
class SoFar:
    """How many rulebooks have run, of how many, and the weightiest fault that they found."""

    run: int
    of: int
    worst: Finding | None = None


@dataclass(frozen=True)
class Outcome:
    """What the rulebooks say of an incident, each finding for itself, the strongest first.
    `timings`: seconds by rulebook and rulebook.fact; `rests_on`: the tables that were read."""

    findings: tuple[Finding, ...]
    skipped: tuple[SkippedRule, ...]
    timings: Mapping[str, float]
    traces: tuple[Trace, ...] = ()
    rests_on: frozenset[str] = frozenset()


@dataclass
class _Run:
    """What gathers while rulebooks run."""

    findings: list[Finding] = field(default_factory=list)
    skipped: list[SkippedRule] = field(default_factory=list)
    timings: dict[str, float] = field(default_factory=dict)
    traces: list[Trace] = field(default_factory=list)
    rests_on: set[str] = field(default_factory=set)

    def add(self, other: _Run) -> None:
        self.findings += other.findings
        self.skipped += other.skipped
        self.traces += other.traces
        self.rests_on |= other.rests_on


def run(
    incident: Incident,
    rulebooks: Sequence[Rulebook],
    overrides: Mapping[str, str] | None = None,
    *,
    fact_time_limit_s: float = FACT_TIME_LIMIT_S,
    memory_limit_bytes: int = MEMORY_LIMIT_BYTES,
    observe: Callable[[Evaluation], None] | None = None,
    progress: Callable[[SoFar], None] | None = None,
) -> Outcome:
    """Every finding of every enabled rulebook, and what could not run and why.

    They are not put together: that is for `oncall.use_case.compose`. Closes the sandbox of the
    incident's connection for good. A rulebook that lacks evidence or
    fails is skipped, never the others. `observe` sees each rulebook's facts before they go;
    `progress` hears after each rulebook what is found so far. Those that say why a job stopped run
    first; the outcome does not depend on the order.
    Raises UsageError for an override that names nothing or has the wrong unit.
    """
    books = apply_overrides(rulebooks, overrides or {})
    incident.replace_parameters(books[0].of_relations if books else {})
    confined = Confined(incident, fact_time_limit_s, memory_limit_bytes)
    try:
        return _run(
            incident, books, confined, fact_time_limit_s, memory_limit_bytes, observe, progress
        )
    finally:
        confined.close()


def _run(
    incident: Incident,
    books: Sequence[Rulebook],
    confined: Confined,
    fact_time_limit_s: float,
    memory_limit_bytes: int,
    observe: Callable[[Evaluation], None] | None,
    progress: Callable[[SoFar], None] | None,
) -> Outcome:
    few_rows = incident.rows("ops") < FEW_ROWS
    bounded = incident.memory_is_bounded
    close_sandbox(incident.con, memory_limit_bytes, few_rows=few_rows, bounded=bounded)
    incident.stores_views = few_rows
    gathered = _Run()
    runs: dict[str, _Run] = {}
    for rulebook in sorted(books, key=_part_about_hangs, reverse=True):
        if progress is not None:
            progress(_so_far(runs, len(books)))
        began = time.perf_counter()

        def evaluate(book: Rulebook) -> _Run:
            one = _Run(timings=gathered.timings)
            with Evaluation(
                incident, book, fact_time_limit_s, gathered.timings, confined
            ) as evaluation:
                _evaluate(evaluation, one)
                one.rests_on |= evaluation.tables_read
                if observe is not None:
                    observe(evaluation)
            return one

        one = evaluate(rulebook)
        if rulebook.written_here and rulebook.enabled:
            one = _without_failures(rulebook, one, evaluate)
        runs[rulebook.name] = one
        gathered.timings[rulebook.name] = time.perf_counter() - began
    for rulebook in books:
        gathered.add(runs[rulebook.name])
    return Outcome(
        findings=tuple(sorted(gathered.findings, key=strength)),
        skipped=tuple(gathered.skipped),
        timings=gathered.timings,
        traces=tuple(gathered.traces),
        rests_on=frozenset(gathered.rests_on),
    )


def _part_about_hangs(rulebook: Rulebook) -> float:
    """Of a rulebook's verdicts: why a job stopped matters most."""
    classes = [verdict.fault_class for verdict in rulebook.book.verdicts.values()]
    return classes.count("hang") / max(len(classes), 1)


def _so_far(runs: Mapping[str, _Run], of: int) -> SoFar:
    # A symptom accuses nobody before it is known what it costs.
    found = (finding for one in runs.values() for finding in one.findings)
    faults = [one for one in found if one.severity != "info" and one.claim.kind != "symptom"]
    return SoFar(len(runs), of, min(faults, key=strength, default=None))


def _without_failures(rulebook: Rulebook, one: _Run, evaluate: Callable[[Rulebook], _Run]) -> _Run:
    """What a site's rulebook said, or if it broke the shipped one that it replaces: a rulebook
    written at night must not cost what was known before. What cannot be computed of the evidence
    is not the rulebook's fault."""
    broke = [skipped for skipped in one.skipped if skipped.failed and not skipped.uncomputed]
    if not broke:
        return one
    why = broke[0].why
    if rulebook.instead_of is not None:
        one = evaluate(rulebook.instead_of)
        why += "; the shipped one ran instead"
    else:
        one.skipped = [skipped for skipped in one.skipped if skipped not in broke]
    one.skipped.append(SkippedRule(rulebook.name, (), why, set_aside=True))
    return one


def _evaluate(evaluation: Evaluation, gathered: _Run) -> None:
    rulebook = evaluation.rulebook
    if not rulebook.enabled:
        by = ", ".join(rulebook.overridden_by)
        gathered.skipped.append(SkippedRule(rulebook.name, (), f"disabled by {by}"))
        return
    try:
        cases = evaluation.cases
    except NotKnown as error:
        gathered.skipped.append(_skipped(rulebook.name, error))
        return
    if lacks := evaluation.lacks:
        why = f"not recorded: {', '.join(map(data_of, lacks))}"
        gathered.skipped.append(SkippedRule(f"{rulebook.name} (in part)", lacks, why))
    if cases:
        _walk(evaluation, rulebook.book.tree, cases, (), gathered)


def _walk(
    evaluation: Evaluation,
    node: Node,
    cases: Sequence[Case],
    path: Way,
    gathered: _Run,
) -> None:
    """Send the cases down the tree together: one query a question, however many cases."""
    if isinstance(node, Leaf):
        _conclude(evaluation, node, cases, path, gathered)
        return
    if isinstance(node, Switch):
        _look_up(evaluation, node, cases, path, gathered)
        return
    try:
        counts = evaluation.counts(node.fact)
    except (MissingEvidence, RelationFailed) as error:
        if node.if_unknown is not None:
            if isinstance(error, RelationFailed):
                # The tree goes on without the answer; that it was not there to be had is reported.
                gathered.skipped.append(_skipped(f"{evaluation.rulebook.name}.{node.fact}", error))
            turn = Turn(node, "unknown")
            _walk(evaluation, node.if_unknown, cases, (*path, turn), gathered)
        else:
            _stop(evaluation, error, node.fact, cases, path, gathered)
        return
    except FactFailed as error:
        _stop(evaluation, error, node.fact, cases, path, gathered)
        return
    yes = [case for case in cases if (case not in counts) is node.yes_if_empty]
    no = [case for case in cases if (case not in counts) is not node.yes_if_empty]
    if yes:
        _walk(evaluation, node.if_yes, yes, (*path, Turn(node, "yes")), gathered)
    if no:
        _walk(evaluation, node.if_no, no, (*path, Turn(node, "no")), gathered)


def _look_up(
    evaluation: Evaluation,
    table: Switch,
    cases: Sequence[Case],
    path: Way,
    gathered: _Run,
) -> None:
    """Send each case to the first row of the table whose code it has."""
    above = [
        (one.table.column, one.codes)
        for one in path
        if isinstance(one, Taken) and one.table.fact == table.fact and one.codes
    ]
    try:
        codes = evaluation.values_of(table.fact, table.column, above)
    except NotKnown as error:
        _stop(evaluation, error, table.fact, cases, path, gathered)
        return
    left = list(cases)
    for written, branch in table.rows.items():
        wanted = codes_of(written)
        here: list[Case] = []
        others: list[Case] = []
        for case in left:
            has = not codes.get(case, frozenset()).isdisjoint(wanted)
            (here if has else others).append(case)
        if here:
            _walk(evaluation, branch, here, (*path, Taken(table, wanted)), gathered)
        left = others
    if left and table.otherwise is not None:
        _walk(evaluation, table.otherwise, left, (*path, Taken(table, ())), gathered)
    elif left:
        _trace(evaluation, NO_VERDICT, left, path, gathered)


def _conclude(
    evaluation: Evaluation,
    leaf: Leaf,
    cases: Sequence[Case],
    path: Way,
    gathered: _Run,
) -> None:
    verdict = leaf.verdict
    if verdict != NO_VERDICT:
        try:
            gathered.findings += findings_of(evaluation, path, leaf, cases)
        except NotKnown as error:
            _stop(evaluation, error, verdict, cases, path, gathered)
            return
    _trace(evaluation, verdict, cases, path, gathered)


def _stop(
    evaluation: Evaluation,
    error: MissingEvidence | RelationFailed | FactFailed,
    where: str,
    cases: Sequence[Case],
    path: Way,
    gathered: _Run,
) -> None:
    """A branch ends without a verdict: say which, why, and for how many cases."""
    gathered.skipped.append(
        _skipped(f"{evaluation.rulebook.name}.{where}", error, f"{len(cases)} case(s) end there")
    )
    _trace(evaluation, None, cases, path, gathered)


def _skipped(
    rule: str, error: MissingEvidence | RelationFailed | FactFailed, more: str = ""
) -> SkippedRule:
    if isinstance(error, RelationFailed):
        why = f"{error}; {more}" if more else str(error)
        return SkippedRule(rule, (), why, uncomputed=error.relation)
    if isinstance(error, MissingEvidence):
        why = f"not recorded: {', '.join(map(data_of, error.missing))}"
        return SkippedRule(rule, error.missing, f"{why}; {more}" if more else why)
    problem = error.problem
    return SkippedRule(
        rule, (), f"{problem.path}:{problem.line}:{problem.column}: {problem.message}"
    )


def _trace(
    evaluation: Evaluation,
    verdict: str | None,
    cases: Sequence[Case],
    path: Way,
    gathered: _Run,
) -> None:
    asked = tuple((turn.question.name, turn.answer) for turn in path if isinstance(turn, Turn))
    name = evaluation.rulebook.name
    gathered.traces += [Trace(name, case, asked, verdict) for case in cases]
