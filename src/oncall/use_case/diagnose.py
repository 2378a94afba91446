"""The one use case: evidence and rulebooks in, a Diagnosis out."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, MutableMapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from oncall.core.diagnosis import (
    Contradiction,
    Coverage,
    Diagnosis,
    Finding,
    Gap,
    SkippedRule,
)
from oncall.core.errors import ExitCode, RelationFailed
from oncall.core.scheduler import Scheduler, with_removal
from oncall.core.symptom import Symptom, symptom_of
from oncall.evidence.coverage import measure
from oncall.evidence.registry import base_tables
from oncall.evidence.window import keep_job, span
from oncall.rules.engine import engine
from oncall.rules.engine.engine import SoFar
from oncall.rules.language.rulebook_file import LOST_TIME
from oncall.use_case import evidence
from oncall.use_case.cases import Job
from oncall.use_case.compose import compose
from oncall.use_case.culprits import (
    NEEDS_ARCHIVE,
    on_stages,
    with_history,
    with_stacks,
    with_stages,
)
from oncall.use_case.deciding import would_decide
from oncall.use_case.doubt import why_logs_say_too_little, why_undecided
from oncall.use_case.suspects import with_suspects

if TYPE_CHECKING:
    from oncall.evidence.incident import Incident
    from oncall.rules.language.rulebook import Rulebook

# What shows whether a job loses time: its operations, or their traffic.
_SHOWS = ("ops", "op_traffic", "epochs", "transfers", "stage_tasks", "launches")


def diagnose(
    incident: Incident,
    rulebooks: Sequence[Rulebook],
    job: str | None = None,
    overrides: Mapping[str, str] | None = None,
    min_coverage: float = 0.9,
    fact_time_limit_s: float = 10.0,
    timings: MutableMapping[str, float] | None = None,
    set_aside: Sequence[SkippedRule] = (),
    progress: Callable[[SoFar], None] | None = None,
    scheduler: Scheduler | None = None,
) -> Diagnosis:
    """Diagnose one job: run all rulebooks on its evidence and list what was not observed.

    The incident is narrowed to that job, and read-only once rules have run. `overrides` maps
    `rulebook.parameter` to its value as text; with less than `min_coverage` of the ranks seen, no
    finding does not mean healthy. `timings` receives seconds by rulebook and rulebook.fact.
    `set_aside` are the site's rulebooks with errors, reported as skipped.
    `progress` hears after each rulebook what is found so far.
    `scheduler` placed the job, if that is known; else its lines in logs say so. Raises UsageError
    if the job is not in the evidence or must be chosen, RulebookError or UsageError for wrong
    overrides.

    What cannot be computed is a gap: rulebooks that need it are skipped, the others run.
    Impossible values are removed from the incident first.
    """
    name = keep_job(incident.con, job)
    incident.disbelieve()
    coverage, notes = measure(incident.con, evidence.least_ranks(incident))
    since_ns, until_ns = span(incident.con)
    outcome = engine.run(
        incident,
        rulebooks,
        overrides or {},
        fact_time_limit_s=fact_time_limit_s,
        progress=progress,
    )
    if timings is not None:
        timings.update(outcome.timings)
    off = [book.name for book in rulebooks if not book.enabled]
    skipped = _skipped(outcome, off)
    broke = {rule.rule for rule in skipped if rule.set_aside}
    yielded = {book.name for book in rulebooks if book.name in broke and book.instead_of}
    not_run = {*off, *(rule.rule for rule in outcome.skipped)}
    checked = _checked(rulebooks, not_run - yielded)
    notes += tuple(f"rulebook {name} is switched off" for name in off)
    notes += tuple(
        f"rulebook {book.name} has verdicts without `kind`: they accuse by themselves"
        for book in rulebooks
        if book.name in checked and not all(one.kind for one in book.book.verdicts.values())
    )
    if scheduler is None and evidence.runs_under_slurm(incident):
        scheduler = Scheduler("slurm")
    findings = _findings(incident, outcome, scheduler)
    if findings and all(finding.severity == "info" for finding in findings):
        notes += ("the findings are for information: none of them is a fault",)
    coverage = replace(
        coverage,
        skipped_rules=(*skipped, *set_aside),
        contradictions=_contradictions(incident),
        by_logs=why_logs_say_too_little(incident),
    )
    reported = symptom_of(incident.parameters("progress_symptoms")["symptom"])
    doubt = why_undecided(incident, slow=_ask_for_time(rulebooks, checked), reported=reported)
    diagnosis = Diagnosis(
        job=name,
        since_ns=since_ns,
        until_ns=until_ns,
        coverage=with_failures(coverage, incident),
        findings=findings,
        notes=notes,
        min_coverage=min_coverage,
        checked=checked,
        site_rulebooks={
            book.name: book.site_file
            for book in rulebooks
            if book.site_file and book.name in checked and book.name not in broke
        },
        rests_on=outcome.rests_on,
        undecided=doubt.why,
    )
    diagnosis = with_suspects(diagnosis, doubt, incident, reported)
    if diagnosis.result != "inconclusive":
        return diagnosis
    asks_for_time = reported is Symptom.SLOW and not doubt.why
    lacks = "durations" if asks_for_time else doubt.lacks
    return replace(diagnosis, would_decide=would_decide(incident, diagnosis.coverage, lacks))


def _ask_for_time(rulebooks: Sequence[Rulebook], checked: Container[str]) -> bool:
    """Whether one of those that ran would say so if the job lost time."""
    return any(
        one.claim.kind == "effect" and not one.claim.effects.isdisjoint(LOST_TIME)
        for book in rulebooks
        if book.name in checked
        for one in book.book.verdicts.values()
    )


def _skipped(outcome: engine.Outcome, off: Sequence[str]) -> tuple[SkippedRule, ...]:
    """The rulebooks that could not run. Without an archive there is no history to judge, and
    nothing to report about that."""
    return tuple(
        rule for rule in outcome.skipped if rule.rule not in off and rule.missing != NEEDS_ARCHIVE
    )


def _findings(
    incident: Incident, outcome: engine.Outcome, scheduler: Scheduler | None
) -> tuple[Finding, ...]:
    """The findings of the rulebooks with their gain, stages, stacks and history, and how to take a
    culprit's host out of the job."""
    shown = not all(map(incident.is_empty, _SHOWS))
    places = evidence.places_of(incident, evidence.stages_of(incident))
    findings = compose(outcome.findings, Job(places, shown))
    findings = with_stages(incident, with_stacks(incident, findings))
    findings = with_history(incident, findings)
    return findings if scheduler is None else with_removal(findings, scheduler)


def about_stops(rulebooks: Sequence[Rulebook]) -> tuple[Rulebook, ...]:
    """The rulebooks whose verdicts all say why a job stopped: what matters first, and takes
    seconds at most, however many ranks there are."""
    return tuple(
        book
        for book in rulebooks
        if book.enabled and {one.fault_class for one in book.book.verdicts.values()} == {"hang"}
    )


def diagnose_stops(
    incident: Incident,
    rulebooks: Sequence[Rulebook],
    job: str | None = None,
    *,
    timings: MutableMapping[str, float] | None = None,
    progress: Callable[[SoFar], None] | None = None,
    stages: Mapping[int, int] = MappingProxyType({}),
    scheduler: Scheduler | None = None,
) -> Diagnosis:
    """Why the job stopped, if it did: the rulebooks `about_stops` alone, the rest has not run.

    Takes arguments and raises as `diagnose` does. Without a finding it is inconclusive, as
    other rulebooks have yet to run (`pending`). `stages` of ranks are taken as known, not computed.
    """
    name = keep_job(incident.con, job)
    incident.disbelieve()
    coverage, notes = measure(incident.con, evidence.least_ranks(incident))
    since_ns, until_ns = span(incident.con)
    first = about_stops(rulebooks)
    outcome = engine.run(incident, first, progress=progress)
    if timings is not None:
        timings.update(outcome.timings)
    findings = compose(outcome.findings, Job(evidence.places_of(incident)))
    findings = on_stages(with_stacks(incident, findings), stages)
    if scheduler is not None:
        findings = with_removal(findings, scheduler)
    skipped = tuple(rule.rule for rule in outcome.skipped)
    pending = tuple(book.name for book in rulebooks if book.enabled and book not in first)
    return Diagnosis(
        job=name,
        since_ns=since_ns,
        until_ns=until_ns,
        coverage=with_failures(replace(coverage, skipped_rules=outcome.skipped), incident),
        findings=findings,
        notes=(*notes, f"{len(pending)} rulebooks have yet to run"),
        checked=_checked(first, skipped),
        pending=pending,
    )


def with_failures(coverage: Coverage, incident: Incident) -> Coverage:
    """The coverage, with a gap for each relation that could not be computed so far."""
    known = {gap.reason for gap in coverage.gaps}
    failed = tuple(
        Gap(str(error), details=error.details)
        for error in incident.failures
        if str(error) not in known
    )
    return replace(coverage, gaps=(*coverage.gaps, *failed)) if failed else coverage


def _contradictions(incident: Incident) -> tuple[Contradiction, ...]:
    """Impossible values of the evidence, and contradictions in it."""
    impossible = tuple(
        Contradiction(
            what=f"{one.count:,} impossible {'values' if one.count > 1 else 'value'} of "
            f"{one.table}.{one.column}",
            count=one.count,
            example=f"such as {one.example}; {'not used' if one.dropped else 'taken as unknown'}",
            tables=(one.table,),
        )
        for one in incident.disbelieved
    )
    try:
        return (*impossible, *evidence.contradictions_of(incident))
    except RelationFailed as error:
        unknown = "could not check the evidence for contradictions"
        tables = tuple(sorted(base_tables([error.relation])))
        return (*impossible, Contradiction(unknown, 1, str(error), tables))


def judges(rulebooks: Sequence[Rulebook], diagnosis: Diagnosis) -> tuple[Rulebook, ...]:
    """The rulebooks that made the diagnosis: the shipped one if the site's failed."""
    ran = diagnosis.site_rulebooks
    return tuple(
        book.instead_of if book.instead_of is not None and book.name not in ran else book
        for book in rulebooks
    )


def exit_code(diagnosis: Diagnosis) -> ExitCode:
    """1 with a fault; 3 without one if the evidence does not suffice; else 0."""
    return {
        "fault": ExitCode.FINDING,
        "none": ExitCode.HEALTHY,
        "inconclusive": ExitCode.TOO_LITTLE_COVERAGE,
    }[diagnosis.result]


def _checked(rulebooks: Sequence[Rulebook], out: Container[str]) -> tuple[str, ...]:
    return tuple(book.name for book in rulebooks if book.name not in out)
