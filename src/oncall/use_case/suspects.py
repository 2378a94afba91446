"""Whom an inconclusive answer names first, and what an engineer's report makes of no finding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from oncall.core.diagnosis import Coverage, Diagnosis, Finding, Suspect
from oncall.core.symptom import Symptom
from oncall.evidence.incident import Incident
from oncall.use_case import evidence
from oncall.use_case.compose import COSTS_NOTHING
from oncall.use_case.doubt import Doubt, blamed, one_look
from oncall.use_case.front import front

# What may have been compared: table, the number of what, and how that is said.
_COMPARED = (
    ("ops", "count(DISTINCT rank)", "operations of {:,} {}", "rank"),
    ("epochs", "count(DISTINCT rank)", "traffic of {:,} {}", "rank"),
    ("op_traffic", "count(DISTINCT rank)", "traffic of {:,} {}", "rank"),
    ("stage_tasks", "count(DISTINCT rank)", "tasks of {:,} {}", "rank"),
    ("gpus", "count(DISTINCT (node, gpu))", "{:,} {}", "GPU"),
    ("nics", "count(DISTINCT (node, nic))", "{:,} {}", "NIC"),
    ("hosts", "count(DISTINCT node)", "{:,} {}", "host"),
    ("pings", "count(*)", "{:,} {}", "ping"),
    ("logged_steps", "count(*)", "{:,} logged {}", "step"),
)


def with_suspects(
    diagnosis: Diagnosis, doubt: Doubt, incident: Incident, reported: Symptom
) -> Diagnosis:
    """An inconclusive diagnosis with its suspects, the likeliest first.

    Where an engineer reports what nothing shows, the answer is no all-clear: it says what was
    compared. A job that may have stopped waits for ranks of which nothing is recorded. Where the
    evidence ends with ranks that wait, their front is always named.
    """
    if diagnosis.result == "fault":
        return diagnosis
    slow = reported is Symptom.SLOW or doubt.lacks
    silent = () if slow else _silent(diagnosis.coverage)
    others = (*silent, *_unproven(diagnosis.findings))
    if reported is not Symptom.UNKNOWN:
        known = doubt.why
        if reported is Symptom.SLOW:
            known = (doubt.why or COSTS_NOTHING) if doubt.suspects or others else ""
        why = known or _nothing(diagnosis, doubt, incident, reported)
        diagnosis = replace(diagnosis, undecided=why)
    if not diagnosis.doubt:
        return diagnosis
    parts = (doubt.suspects, _waiting(incident, doubt))
    first, second = reversed(parts) if reported is Symptom.HUNG else parts
    return replace(diagnosis, suspects=(*first, *second, *others))


def _waiting(incident: Incident, doubt: Doubt) -> tuple[Suspect, ...]:
    """For whom ranks wait, and in what; and that this may pass, unless the doubt says so."""
    if (found := front(incident)) is None:
        return ()
    unsure = one_look(evidence.waiting_ranks(incident)[2])
    return (found if doubt.why == unsure else replace(found, why=f"{found.why}; {unsure}"),)


def _silent(coverage: Coverage) -> tuple[Suspect, ...]:
    """Ranks that left nothing, where most others left something."""
    gaps = [gap for gap in coverage.gaps if gap.silent]
    silent = sum(len(gap.ranks) for gap in gaps)
    others = coverage.ranks - silent
    return tuple(
        Suspect(blamed(gap.ranks), f"{gap.reason.partition(';')[0]}, unlike {others:,} others")
        for gap in gaps
        if silent < others
    )


def _unproven(findings: Sequence[Finding]) -> list[Suspect]:
    """What may cost time and nothing shows that it does, with what would explain it; what may cost
    most first."""
    found = []
    for one in findings:
        effect = one.claim.kind == "effect" or one.effect
        if not effect or one.explained_by is not None:
            continue
        share, low, high = (
            (one.lost.share, one.lost.low, one.lost.high) if one.lost else (None, None, None)
        )
        why = f"{one.effect}: {one.title}" if one.effect else one.title
        if share is not None:
            why += f" (may cost {100 * share:.0f} % of the time)"
        found.append(Suspect(one.blame, why, share, low, high))
    return sorted(found, key=lambda one: -(one.share or 0))


def _nothing(diagnosis: Diagnosis, doubt: Doubt, incident: Incident, reported: Symptom) -> str:
    """That nothing shows what the engineer reports, what was compared, and what is not recorded."""
    iterations, timed = evidence.account_of(incident)
    compared = [f"{iterations:,} iterations"] if iterations else []
    for table, number, said, what in _COMPARED:
        known = table in diagnosis.rests_on
        if known and (count := evidence.compared_of(incident, table, number)):
            compared.append(said.format(count, what if count == 1 else f"{what}s"))
    shown = "is slow" if reported is Symptom.SLOW else "has stopped"
    untimed = "durations of operations are not recorded" if timed is False else ""
    said = f"nothing recorded {shown}: compared {', '.join(dict.fromkeys(compared))}"
    if not compared:
        said = f"nothing recorded shows whether the job {shown}"
    return "; ".join(filter(None, (said, doubt.why or untimed)))
