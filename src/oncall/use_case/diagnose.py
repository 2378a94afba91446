"""The one use case: evidence and rulebooks in, a Diagnosis out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from oncall.core.diagnosis import (
    Blame,
    Contradiction,
    Coverage,
    Diagnosis,
    Finding,
    Gap,
    SkippedRule,
    Stack,
)
from oncall.core.errors import ExitCode, MissingEvidence, RelationFailed
from oncall.core.places import Cells, Places, host
from oncall.core.scheduler import Scheduler, with_removal
from oncall.core.symptom import Symptom, symptom_of
from oncall.evidence.coverage import measure
from oncall.evidence.registry import base_tables
from oncall.evidence.window import keep_job, span
from oncall.rules.engine import engine
from oncall.rules.engine.engine import SoFar
from oncall.rules.language.rulebook_file import LOST_TIME
from oncall.rules.language.template import hex_id
from oncall.use_case.cases import Job
from oncall.use_case.compose import compose
from oncall.use_case.deciding import would_decide
from oncall.use_case.doubt import why_logs_say_too_little, why_undecided
from oncall.use_case.recurrence import NEEDS_ARCHIVE, with_history
from oncall.use_case.suspects import with_suspects

if TYPE_CHECKING:
    import duckdb

    from oncall.evidence.incident import Incident
    from oncall.rules.language.rulebook import Rulebook

# Of ranks that are in the same place, one stack is shown; three in all, of the first few ranks.
_MOST_STACKS = 3
_MOST_LOOKED_AT = 64


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
    coverage, notes = measure(incident.con)
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
    findings = _findings(incident, outcome, scheduler or _scheduler_of_logs(incident))
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
    findings = compose(outcome.findings, _job(incident))
    findings = _with_stages(incident, _with_stacks(incident, findings))
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
    coverage, notes = measure(incident.con)
    since_ns, until_ns = span(incident.con)
    first = about_stops(rulebooks)
    outcome = engine.run(incident, first, progress=progress)
    if timings is not None:
        timings.update(outcome.timings)
    findings = compose(outcome.findings, Job(_places(incident)))
    findings = _placed(_with_stacks(incident, findings), stages)
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


def _scheduler_of_logs(incident: Incident) -> Scheduler | None:
    """Slurm, where its own lines stand in the logs."""
    ((slurm,),) = incident.con.execute(
        "SELECT count(*) > 0 FROM log_events "
        "WHERE regexp_matches(text, '(srun|slurmstepd): error:')"
    ).fetchall()
    return Scheduler("slurm") if slurm else None


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
        incident.require(["contradictions"])
    except MissingEvidence:
        return impossible
    except RelationFailed as error:
        unknown = "could not check the evidence for contradictions"
        tables = tuple(sorted(base_tables([error.relation])))
        return (*impossible, Contradiction(unknown, 1, str(error), tables))
    rows = incident.con.execute(
        "SELECT what, count, example, tables, coalesce(ranks, []) "
        "FROM contradictions ORDER BY count DESC, what"
    ).fetchall()
    return (
        *impossible,
        *(
            Contradiction(what, count, example, *map(tuple, named))
            for what, count, example, *named in rows
        ),
    )


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


def _with_stacks(incident: Incident, findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """The findings, each root cause with the stacks of its blamed ranks."""
    blamed = {finding.id: _blamed_ranks(finding) for finding in findings}
    ranks = {rank for of_one in blamed.values() for rank in of_one}
    stacks = stacks_of(incident, ranks)
    return tuple(
        replace(
            finding, stacks=_different(stacks[one] for one in blamed[finding.id] if one in stacks)
        )
        for finding in findings
    )


def _different(stacks: Iterable[Stack]) -> tuple[Stack, ...]:
    """The first few stacks that are not like another before."""
    by_frames: dict[tuple[str, ...], Stack] = {}
    for stack in stacks:
        by_frames.setdefault(stack.frames, stack)
    return tuple(by_frames.values())[:_MOST_STACKS]


# What shows whether a job loses time: its operations, or their traffic.
_SHOWS = ("ops", "op_traffic", "epochs", "transfers", "stage_tasks", "launches")


def _job(incident: Incident) -> Job:
    """What is known of the job beside its findings."""
    shown = not all(map(incident.is_empty, _SHOWS))
    return Job(_places(incident, _stages(incident)), shown)


def _places(incident: Incident, stages: Mapping[int, int] = MappingProxyType({})) -> Places:
    """Where the job's ranks run, and what they take part in."""
    by_node, by_gpu, by_nic, by_comm, by_stage = (defaultdict[Any, set[int]](set) for _ in range(5))
    for rank, node, gpu, nic in _rows(incident, "ranks", "rank, node, gpu, nic"):
        node = node and host(node)
        by_node[node].add(rank)
        by_gpu[node, gpu].add(rank)
        by_nic[node, nic].add(rank)
    for comm, rank in _rows(incident, "comms", "comm, rank"):
        by_comm[hex_id(comm)].add(rank)
    for rank, stage in stages.items():
        by_stage[stage].add(rank)

    def frozen(of: Mapping[Any, set[int]]) -> dict[Any, Cells]:
        return {key: frozenset(ranks) for key, ranks in of.items()}

    return Places(*map(frozen, (by_node, by_gpu, by_nic, by_comm, by_stage)))


def _rows(incident: Incident, table: str, columns: str) -> list[tuple[Any, ...]]:
    """Distinct rows, without those of unknown ranks or of no host or communicator."""
    named = "node" if "node" in columns else "comm"
    return incident.con.execute(
        f"SELECT DISTINCT {columns} FROM {table} WHERE rank IS NOT NULL AND {named} IS NOT NULL"
    ).fetchall()


def _stages(incident: Incident) -> dict[int, int]:
    """The pipeline stage of each rank; empty where it is not known."""
    try:
        incident.require(["stage_layout"])
    except (MissingEvidence, RelationFailed):
        return {}
    rows = incident.con.execute("SELECT rank, stage FROM stage_layout WHERE stage IS NOT NULL")
    return dict(rows.fetchall())


def _with_stages(incident: Incident, findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """The findings, each blamed rank with its pipeline stage, where the job has more than one."""
    if not any(one.where.get("rank") is not None for f in findings for one in f.blame):
        return tuple(findings)
    stages = _stages(incident)
    return tuple(findings) if len(set(stages.values())) < 2 else _placed(findings, stages)


def _placed(findings: Sequence[Finding], stages: Mapping[int, int]) -> tuple[Finding, ...]:

    def placed(one: Blame) -> Blame:
        rank = one.where.get("rank")
        stage = None if rank is None else stages.get(rank)
        known = stage is None or one.where.get("stage") is not None
        return one if known else replace(one, where={**one.where, "stage": stage})

    return tuple(replace(f, blame=tuple(map(placed, f.blame))) for f in findings)


def _blamed_ranks(finding: Finding) -> tuple[int, ...]:
    if finding.explained_by is not None:
        return ()
    ranks = {one.where["rank"] for one in finding.blame if one.where.get("rank") is not None}
    return tuple(sorted(ranks)[:_MOST_LOOKED_AT])


def stacks_of(incident: Incident, ranks: Iterable[int]) -> dict[int, Stack]:
    """Where each rank's program was last: its main thread if it was looked at, else a call."""
    return {**_stacks(incident.con, ranks), **_own_stacks(incident, ranks)}


def _own_stacks(incident: Incident, ranks: Iterable[int]) -> dict[int, Stack]:
    """The main thread of each rank that was looked at."""
    try:
        incident.require(["main_threads"])
    except (MissingEvidence, RelationFailed):
        return {}
    rows = incident.con.execute(
        "SELECT rank, activity, frames FROM main_threads "
        "WHERE looks > 0 AND list_contains(?, rank)",
        [sorted(ranks)],
    ).fetchall()
    return {rank: Stack(rank, f"in {activity}", tuple(frames)) for rank, activity, frames in rows}


def _stacks(con: duckdb.DuckDBPyConnection, ranks: Iterable[int]) -> dict[int, Stack]:
    """One stack a rank: that of its oldest operation in flight, else of its last one."""
    rows = con.execute(
        """
        WITH calls AS (
            SELECT s.rank, s.frames, s.seq, o.op, c.role, c.name,
                   o.ended_ns IS NULL AND coalesce(NOT o.done, o.observed_ns IS NOT NULL, false)
                     AS in_flight,
                   coalesce(o.enqueued_ns, o.started_ns) AS at_ns
            FROM stacks s
            LEFT JOIN ops o ON (o.rank, o.comm, o.seq, o.kind) = (s.rank, s.comm, s.seq, s.kind)
            LEFT JOIN comms c ON (c.rank, c.comm) = (s.rank, s.comm)
            WHERE len(s.frames) > 0 AND list_contains(?, s.rank))
        SELECT rank, op, seq, coalesce(role, 'communicator ' || name), in_flight, frames
        FROM calls
        QUALIFY row_number() OVER (
            PARTITION BY rank
            ORDER BY in_flight DESC, CASE WHEN in_flight THEN at_ns ELSE -at_ns END NULLS LAST,
                     seq DESC) = 1
        """,
        [sorted(ranks)],
    ).fetchall()
    return {
        rank: Stack(rank, _call(op, seq, group, in_flight), tuple(frames))
        for rank, op, seq, group, in_flight, frames in rows
    }


def _call(op: str | None, seq: int | None, group: str | None, in_flight: bool | None) -> str:
    call = " ".join(str(part) for part in (op, seq) if part is not None) or "an unnamed call"
    # Each communicator numbers its own operations.
    where = f"{call} of {group}" if group else call
    return f"in {where}" if in_flight else f"last seen in {where}"
