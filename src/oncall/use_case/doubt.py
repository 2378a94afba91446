"""Why finding no fault would not mean that the job is healthy."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any, Literal, NamedTuple

from oncall.analysis.stacks.activities import COLLECTIVE
from oncall.core.errors import MissingEvidence, RelationFailed
from oncall.core.nodeset import fold_ranks
from oncall.evidence.incident import Incident

UNTIMED = "no durations of operations are recorded: a slow GPU or link would not show"
IN_PART = (
    "one iteration took much longer, or no iteration of all ranks was recorded: a rank that slows "
    "the job may not show"
)
FEW = "too few iterations were recorded to show a rank that slows the job"
_ITERATIONS = 4  # of which each call should be seen, where nothing shows how long they are
_MOST_AWAITED = 3  # ranks named one by one, with what their stacks show
# Why counters, where no operation is recorded, do not show that the job moves; empty if they do.
_BY_COUNTERS = """
    WITH looks AS (
        SELECT comm, rank, count(DISTINCT launched) AS counts FROM launches
        WHERE launched IS NOT NULL AND at_ns IS NOT NULL GROUP BY comm, rank),
    times AS (
        SELECT count(DISTINCT at_ns) AS looks, (max(at_ns) - min(at_ns)) / 1e9 AS span_s
        FROM launches WHERE launched IS NOT NULL)
    SELECT CASE WHEN EXISTS (FROM ops) OR NOT EXISTS (FROM launches) THEN ''
        WHEN EXISTS (FROM recordings WHERE kind = 'nccl_ras' AND problem IS NOT NULL)
            THEN 'not every answer of NCCL RAS could be read'
        WHEN looks = 0 THEN 'no counts of operations are recorded: the job may be stopped'
        WHEN looks = 1 THEN 'one look at counters cannot show whether the job moves'
        WHEN NOT EXISTS (FROM looks WHERE counts > 1)
            THEN 'no rank launched an operation between ' || looks || ' looks'
                || CASE WHEN span_s >= 0.1 THEN printf(' (%.0f s)', span_s) ELSE '' END
        ELSE '' END
    FROM times
"""


class Doubt(NamedTuple):
    """Why a question is open, "" if it is not, and what in particular would settle it."""

    why: str = ""
    lacks: Literal["", "durations", "iterations", "pings"] = ""


def why_undecided(incident: Incident, checked: Container[str]) -> Doubt:
    """Why it is not known whether the job moves, or moves as it should; empty if that is known."""
    stopped = (
        _waiting(incident)
        or _ended_without(incident)
        or _calls_alone(incident)
        or _seen_once(incident)
        or _alike(incident)
    )
    slow = _slow(incident) if "slow" in checked and not stopped else Doubt()
    if slow.why:
        return slow
    return Doubt(stopped or str(incident.con.execute(_BY_COUNTERS).fetchall()[0][0]))


def _waiting(incident: Incident) -> str:
    """How many ranks wait where nothing shows that the job went on, and for whom."""
    waiting = _asked(
        incident,
        ["front", "job_progress"],
        "SELECT count(DISTINCT rank), any_value(why) FILTER (moved) FROM front "
        "LEFT JOIN job_progress USING (job) "
        "WHERE NOT coalesce(moved AND state = 'moving', false) HAVING count(DISTINCT rank) > 0",
    )
    if not waiting:
        return ""
    ((count, why),) = waiting
    ranks = "1 rank waits" if count == 1 else f"{count} ranks wait"
    unknown = (
        "it is not certain that the job went on" if why else "nothing shows that the job went on"
    )
    doubt = f"{ranks} for others, and {unknown}" + (f" ({why})" if why else "")
    awaited = _asked(
        incident,
        ["hang_roots"],
        "SELECT DISTINCT rank FROM hang_roots WHERE how IN ('absent', 'silent') ORDER BY rank",
    )
    if not awaited or len(awaited) >= max(count, _MOST_AWAITED + 1):
        return doubt
    if len(awaited) > _MOST_AWAITED:
        return (
            f"{doubt}; if it did not, look at ranks {fold_ranks(rank for (rank,) in awaited)} first"
        )
    seen = _asked(
        incident, ["main_threads"], "SELECT rank, activity, frame FROM main_threads WHERE looks > 0"
    )
    where = {rank: f" (in {activity}: {frame})" for rank, activity, frame in seen}
    waits = {rank for rank, activity, _ in seen if activity == COLLECTIVE}
    named = [rank for (rank,) in awaited]
    named = [rank for rank in named if rank not in waits] or named
    first = " and ".join(f"rank {rank}{where.get(rank, '')}" for rank in named)
    return f"{doubt}; if it did not, look at {first} first"


def _ended_without(incident: Incident) -> str:
    """Whose calls completed although another never made them, so that one of them may have ended;
    empty if nobody's did, or somebody went on after."""
    rows = _asked(
        incident,
        ["uncalled_ends"],
        "SELECT rank, ended FROM uncalled_ends ORDER BY len(ended) DESC, rank",
    )
    if not rows:
        return ""
    rank, ended = rows[0]
    who = "rank" if len(ended) == 1 else "ranks"
    return (
        f"operations of {who} {fold_ranks(ended)} ended that rank {rank} never called, and nobody "
        f"went on: they failed when rank {rank} ended, or its recording is older; look at rank "
        f"{rank} first"
    )


def _calls_alone(incident: Incident) -> str:
    """Of logs of calls: that they cannot show how the job went on; empty if ends are recorded."""
    ((alone,),) = _asked(
        incident,
        ["knowledge"],
        "SELECT bool_and(NOT completion AND len(live) = 0) FROM knowledge",
    ) or [(False,)]
    return (
        "only calls are recorded, and nothing shows that the last ones completed" if alone else ""
    )


def _not_shown(incident: Incident) -> str:
    """Why operations do not show which rank slows the job; empty if they could."""
    try:
        incident.require(["replayed_jobs", "round_baselines", "rounds", "device_lags"])
    except MissingEvidence:
        return ""
    except RelationFailed:
        return FEW
    ((part, shown, calls_hide, baselines, durations, devices_hide, repeated),) = (
        incident.con.execute(
            "SELECT EXISTS (FROM replayed_jobs WHERE timed AND NOT whole), "
            "EXISTS (FROM replayed_jobs WHERE timed OR whole), EXISTS (FROM replayed_jobs), "
            "EXISTS (FROM round_baselines), EXISTS (FROM rounds WHERE basis = 'duration'), "
            "EXISTS (FROM device_lags WHERE hidden), "
            "(SELECT min(calls) FROM "
            "(SELECT count(DISTINCT seq) AS calls FROM rounds GROUP BY job, comm, op)) >= ?",
            [_ITERATIONS],
        ).fetchall()
    )
    if part:
        return IN_PART
    if devices_hide or (calls_hide and not shown):
        return UNTIMED
    if shown or (baselines and durations and repeated):
        return ""
    return UNTIMED if baselines and not durations else FEW


def _slow(incident: Incident) -> Doubt:
    """Why it is not known that no rank slows the job; empty if that is known."""
    if perhaps := _by_chance(incident):
        return Doubt(perhaps, "iterations")
    if unexplained := _unexplained(incident):
        return Doubt(unexplained, "pings")
    hidden = _not_shown(incident)
    return Doubt(hidden, "durations" if hidden == UNTIMED else "iterations")


def _unexplained(incident: Incident) -> str:
    """Since when the job is slower for reasons that its operations do not show; empty if not."""
    rows = _asked(
        incident,
        ["lost_time"],
        "SELECT 1 / (1 - share), strftime(make_timestamp_ns(at_ns), '%H:%M:%S') FROM lost_time "
        "WHERE cause = 'unexplained' ORDER BY ALL DESC",
    )
    if not rows:
        return ""
    ((times, since), *_) = rows
    return (
        f"since {since} UTC, iterations take {times:.1f} times as long as before, and operations "
        "show no rank or link that they wait for"
    )


def _by_chance(incident: Incident) -> str:
    """For whom, or for whose transfers, the others may have waited; empty if for nobody."""
    rows = _asked(
        incident,
        ["lost_time"],
        "SELECT list(rank ORDER BY rank), any_value(share), any_value(shown_by), "
        "strftime(make_timestamp_ns(any_value(at_ns)), '%H:%M:%S') FROM lost_time "
        "WHERE cause = 'perhaps' GROUP BY job ORDER BY max(share) DESC, job",
    )
    if not rows:
        return ""
    ((ranks, part, shown_by, since), *_) = rows
    late = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {fold_ranks(ranks)}"
    if shown_by == "overlap":
        return (
            f"since {since} UTC, transfers of {late} take longer, by up to {100 * part:.0f} % of "
            "an iteration; whether computation hides that is not recorded"
        )
    other = "chance, or work that rank 0 does for all," if ranks == [0] else "chance"
    return (
        f"{100 * part:.0f} % of the time may be lost to waits for {late}, but {other} is not "
        "excluded"
    )


def _alike(incident: Incident) -> str:
    """Why stacks do not show which process is the reason; empty if there are none, or calls are
    recorded, which show by themselves who waits."""
    rows = _asked(
        incident,
        ["main_threads"],
        "SELECT activity, count(*) FROM main_threads "
        "WHERE looks > 0 AND moved IS DISTINCT FROM true AND NOT EXISTS (FROM ops) "
        "GROUP BY activity ORDER BY count(*) DESC, activity",
    )
    if not rows:
        return ""
    where = ", ".join(f"{count} in {activity}" for activity, count in rows)
    return f"the stacks show no process that the others wait for ({where})"


def _seen_once(incident: Incident) -> str:
    """Which processes one look at stacks shows to be elsewhere, where that may be chance."""
    rows = _asked(
        incident,
        ["odd_stacks"],
        "SELECT list(process ORDER BY rank), list(rank), any_value(others) FROM odd_stacks "
        "WHERE doubted GROUP BY job",
    )
    if not rows:
        return ""
    ((processes, ranks, others),) = rows
    if len(ranks) > 1 and None not in ranks:
        processes = [f"ranks {fold_ranks(ranks)}"]
    return (
        f"one look at stacks shows {' and '.join(processes)} apart from {others} others, as it may "
        "of a job that runs: take the stacks again"
    )


def _asked(incident: Incident, relations: Sequence[str], sql: str) -> list[tuple[Any, ...]]:
    """The rows, none where the evidence for a relation is missing or it failed."""
    try:
        incident.require(list(relations))
    except (MissingEvidence, RelationFailed):
        return []
    return incident.con.execute(sql).fetchall()


def why_logs_say_too_little(incident: Incident) -> str | None:
    """Why text, where it is the only evidence, does not show a healthy job; empty if it does."""
    logs = [not incident.is_empty(name) for name in ("log_events", "logged_steps")]
    ((of_hosts,),) = incident.con.execute(
        "SELECT count(*) > 0 FROM recordings WHERE kind IN ('host_text', 'port_counters')"
    ).fetchall()
    # A host's snapshot is no measurement of a job.
    others = ("ops", "launches", "stage_tasks", *(() if of_hosts else ("gpus", "hosts")))
    if not (any(logs) or of_hosts) or not all(map(incident.is_empty, others)):
        return None
    if not any(logs):
        return "text of hosts and ports shows no fault, and nothing shows how the job goes on"
    try:
        incident.require(["log_progress"])
    except (MissingEvidence, RelationFailed):
        return "the logs' steps could not be read"
    rows = incident.con.execute(
        "SELECT bool_or(finished AND steps > 1), sum(steps), max(last_iteration) FROM log_progress"
    ).fetchall()
    ((finished, steps, last),) = rows
    if finished:
        return ""
    if steps:
        return f"the log ends after step {last:,}" if last is not None else "the log just ends"
    if _asked(incident, [], "SELECT 1 FROM log_events WHERE kind = 'served' LIMIT 1"):
        return "the log shows no fault of a server that answers; whether it is slow is unknown"
    return "the log shows neither a fault nor steps of training"
