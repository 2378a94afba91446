"""Merge the answers of many nodes into one incident that records what is missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from oncall.evidence.coverage import COLLECTOR, GATHERED
from oncall.evidence.incident import Incident
from oncall.evidence.settle import keep_whole_rounds, name_peers, settle_duplicates
from oncall.evidence.unreported import name_unreported
from oncall.fleet.outcome import REASONS, Outcome, collector_of
from oncall.fleet.transport import Clock
from oncall.node.store.parts import ReceivedPart, load_parts

MEMORY_BYTES = 4 * 2**30
_MOST_GAPS = 5  # reported by one node
_MOST_TEXT = 200
_MEASURED = ("pings", "bandwidths", "clocks", "thread_stacks")


@dataclass(frozen=True)
class Answers:
    """The result of a gather: parts on disk by sender (the host), and the outcome of each host."""

    parts: Sequence[ReceivedPart]
    outcomes: Mapping[str, Outcome]
    clocks: Mapping[str, Clock]


def merge(answers: Answers, job: str) -> Incident:
    """One incident of all answers about `job`; it contains the job even without answers.

    An answer that cannot be read, or does not fit in the memory limit, becomes a gap. The caller
    closes the incident.
    """
    with Incident.empty().handed_on() as incident:
        incident.con.execute(f"SET memory_limit = '{MEMORY_BYTES // 2**20}MiB'")
        bad: dict[str, str] = {}
        for one in load_parts(incident.con, answers.parts):
            bad.setdefault(one.part.sender, f"{one.part.table}: {one.problem}")
        incident.con.execute(
            "INSERT INTO jobs (job) SELECT $job WHERE NOT EXISTS (FROM jobs WHERE job = $job)",
            {"job": job},
        )
        settle_duplicates(incident.con)
        keep_whole_rounds(incident.con)
        _add_collectors(incident, answers.outcomes, bad)
        name_unreported(incident.con)
        name_peers(incident.con)
        _add_clocks(incident, answers)
        return incident


def merge_measured(answers: Answers) -> tuple[Incident, dict[str, str]]:
    """An incident of what nodes measured on demand (probes, stacks) with their clocks, and the
    problems of hosts whose answers cannot be read. The caller closes the incident."""
    with Incident.empty().handed_on() as incident:
        bad = {one.part.sender: one.problem for one in load_parts(incident.con, answers.parts)}
        _add_clocks(incident, answers)
        return incident, bad


def measured_rows(measured: Incident) -> dict[str, dict[str, list[Any]]]:
    """What was measured on demand, by table and column, without empty tables."""
    found = {}
    for table in _MEASURED:
        names = [name for name, *_ in measured.con.execute(f"DESCRIBE {table}").fetchall()]
        if rows := measured.con.execute(f"FROM {table}").fetchall():
            columns = map(list, zip(*rows, strict=True))
            found[table] = dict(zip(names, columns, strict=True))
    return found


def add_rows(known: Incident, rows: Mapping[str, Mapping[str, list[Any]]]) -> None:
    """Add what was measured on demand to an incident."""
    for table, columns in rows.items():
        known.append(table, dict(columns))


def _add_collectors(
    incident: Incident, outcomes: Mapping[str, Outcome], bad: Mapping[str, str]
) -> None:
    """Rows in `collectors`: which hosts answered, which did not and why, and reported gaps."""
    rows: list[dict[str, str | None]] = []
    for host, outcome in outcomes.items():
        if outcome.kind == "no-data":
            continue  # no node of this job
        problem = None if outcome.kind == "ok" else _reason(outcome)
        if problem is None and host in bad:
            problem = f"{REASONS['protocol']}: {bad[host][:_MOST_TEXT]}"
        said = [(GATHERED, problem), *own_gaps(outcome.status)]
        rows += ({"node": outcome.node, "source": source, "error": one} for source, one in said)
    # Without a time: the time of the query must not extend the window of the evidence.
    incident.append_rows("collectors", rows)


def _reason(outcome: Outcome) -> str:
    general = REASONS[outcome.kind]
    return f"{general}: {outcome.message[:_MOST_TEXT]}" if outcome.message else general


def own_gaps(status: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """The gaps that a node reports itself."""
    gaps = status.get("gaps")
    for gap in gaps[:_MOST_GAPS] if isinstance(gaps, list) else ():
        yield "shards", str(gap)[:_MOST_TEXT]
    problem = collector_of(status).get("problem")
    if isinstance(problem, str):
        yield COLLECTOR, problem[:_MOST_TEXT]


def _add_clocks(incident: Incident, answers: Answers) -> None:
    measured = (
        {"node": answers.outcomes[host].node, **asdict(clock)}
        for host, clock in answers.clocks.items()
    )
    incident.append_rows("clocks", measured)
