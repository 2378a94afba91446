"""Why finding no fault would not mean that the job is healthy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

from oncall.analysis.stacks.activities import COLLECTIVE
from oncall.core.diagnosis import Blame, Suspect
from oncall.core.errors import MissingEvidence, RelationFailed
from oncall.core.nodeset import fold_ranks
from oncall.core.symptom import Symptom
from oncall.evidence.incident import Incident

UNTIMED = "no durations of operations are recorded: a slow GPU or link would not show"
IN_PART = (
    "one iteration took much longer, or no iteration of all ranks was recorded: a rank that slows "
    "the job may not show"
)
FEW = "too few iterations were recorded to show a rank that slows the job"
_ITERATIONS = 4  # of which each call should be seen, where nothing shows how long they are
_MOST_AWAITED = 3  # ranks of which it is said what their stacks show
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
        WHEN looks = 1 THEN 'one snapshot of counters cannot show whether the job moves'
        WHEN NOT EXISTS (FROM looks WHERE counts > 1)
            THEN 'no rank launched an operation between ' || looks || ' looks'
                || CASE WHEN span_s >= 0.1 THEN printf(' (%.0f s)', span_s) ELSE '' END
        ELSE '' END
    FROM times
"""


class Doubt(NamedTuple):
    """Why a question is open, "" if it is not, what in particular would settle it, and the
    suspects until then."""

    why: str = ""
    lacks: Literal["", "durations", "iterations", "pings"] = ""
    suspects: tuple[Suspect, ...] = ()


def why_undecided(incident: Incident, *, slow: bool, reported: Symptom = Symptom.UNKNOWN) -> Doubt:
    """Why it is not known whether the job moves, or moves as it should; empty if that is known.
    `slow`: some rulebook that ran would say so if the job were slow."""
    stops = (_waiting, _ended_without, _calls_alone, _seen_once, _alike)
    slows, hides = ((_by_chance, _unexplained), (_not_shown,)) if slow else ((), ())
    first = (*slows, *stops) if reported is Symptom.SLOW else (*stops, *slows)
    doubts = (ask(incident) for ask in (*first, *hides, _by_counters))
    return next((doubt for doubt in doubts if doubt.why), Doubt())


def blamed(ranks: Iterable[int]) -> tuple[Blame, ...]:
    return tuple(Blame("rank", {"rank": rank}) for rank in ranks)


def _by_counters(incident: Incident) -> Doubt:
    return Doubt(str(incident.con.execute(_BY_COUNTERS).fetchall()[0][0]))


def _waiting(incident: Incident) -> Doubt:
    """How many ranks wait where nothing shows that the job went on, and for whom."""
    waiting = asked(
        incident,
        ["front", "job_progress"],
        "SELECT count(DISTINCT rank), any_value(why) FILTER (moved) FROM front "
        "LEFT JOIN job_progress USING (job) "
        "WHERE NOT coalesce(moved AND state = 'moving', false) HAVING count(DISTINCT rank) > 0",
    )
    if not waiting:
        return Doubt()
    ((count, why),) = waiting
    ranks = "1 rank is waiting" if count == 1 else f"{count} ranks are waiting"
    unknown = (
        f"it is unclear whether the job goes on ({why})"
        if why
        else "nothing shows whether the job goes on"
    )
    awaited = asked(
        incident,
        ["hang_roots"],
        "SELECT DISTINCT rank FROM hang_roots WHERE how IN ('absent', 'silent') ORDER BY rank",
    )
    if not awaited or len(awaited) >= max(count, _MOST_AWAITED + 1):
        return Doubt(f"{ranks} for others, and {unknown}")
    named = [rank for (rank,) in awaited]
    doing = _doing(incident) if len(named) <= _MOST_AWAITED else {}
    named = [rank for rank in named if doing.get(rank, ("",))[0] != COLLECTIVE] or named
    where = ", ".join(f"in {': '.join(doing[rank])}" for rank in named if rank in doing)
    whom = "it" if len(named) == 1 else "them"
    against = f"{ranks} for {whom}" + (f" ({where})" if where else "")
    return Doubt(unknown, suspects=(Suspect(blamed(named), against),))


def _doing(incident: Incident) -> dict[int, tuple[str, str]]:
    """What each rank that was looked at does, and its frame."""
    rows = asked(
        incident, ["main_threads"], "SELECT rank, activity, frame FROM main_threads WHERE looks > 0"
    )
    return {rank: (activity, frame) for rank, activity, frame in rows}


def _ended_without(incident: Incident) -> Doubt:
    """Whose calls completed although another never made them, so that one of them may have ended;
    empty if nobody's did, or somebody went on after."""
    rows = asked(
        incident,
        ["uncalled_ends"],
        "SELECT rank, ended FROM uncalled_ends ORDER BY len(ended) DESC, rank",
    )
    if not rows:
        return Doubt()
    rank, ended = rows[0]
    who = "rank" if len(ended) == 1 else "ranks"
    against = f"{who} {fold_ranks(ended)} completed a call that it never made, and made none since"
    return Doubt(
        "either the call failed when it ended, or its recording is older",
        suspects=(Suspect(blamed([rank]), against),),
    )


def _calls_alone(incident: Incident) -> Doubt:
    """Of logs of calls: that they cannot show how the job went on; empty if ends are recorded."""
    ((alone,),) = asked(
        incident,
        ["knowledge"],
        "SELECT bool_and(NOT completion AND len(live) = 0) FROM knowledge",
    ) or [(False,)]
    return Doubt(
        "only calls are recorded: nothing shows whether the last ones completed" if alone else ""
    )


def _not_shown(incident: Incident) -> Doubt:
    """Why operations do not show which rank slows the job; empty if they could."""
    try:
        incident.require(["replayed_jobs", "round_baselines", "rounds", "device_lags"])
    except MissingEvidence:
        return Doubt()
    except RelationFailed:
        return Doubt(FEW, "iterations")
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
        return Doubt(IN_PART, "iterations")
    if devices_hide or (calls_hide and not shown):
        return Doubt(UNTIMED, "durations")
    if shown or (baselines and durations and repeated):
        return Doubt()
    return Doubt(UNTIMED, "durations") if baselines and not durations else Doubt(FEW, "iterations")


def _unexplained(incident: Incident) -> Doubt:
    """Since when the job is slower for reasons that its operations do not show; empty if not."""
    rows = asked(
        incident,
        ["lost_time"],
        "SELECT share, strftime(make_timestamp_ns(at_ns), '%H:%M:%S') FROM lost_time "
        "WHERE cause = 'unexplained' ORDER BY ALL DESC",
    )
    if not rows:
        return Doubt()
    ((share, since), *_) = rows
    slower = f"since {since} UTC, iterations take {1 / (1 - share):.1f} times as long as before"
    unseen = "operations show no rank or link that they wait for"
    return Doubt(unseen, "pings", (Suspect((), slower, share),))


def _by_chance(incident: Incident) -> Doubt:
    """For whom the others may have waited; empty if for nobody."""
    rows = asked(
        incident,
        ["lost_time"],
        "SELECT list(rank ORDER BY rank), any_value(share), any_value(low), any_value(high) "
        "FROM lost_time WHERE cause = 'perhaps' "
        "GROUP BY job, entry ORDER BY max(share) DESC, job, entry",
    )
    if not rows:
        return Doubt()
    suspects = []
    for ranks, share, low, high in rows:
        whom = "it" if len(ranks) == 1 else "them"
        against = f"others wait for {whom} {100 * share:.0f} % of the time"
        suspects.append(Suspect(blamed(ranks), against, share, low, high))
    other = ", or work that rank 0 does for all" if rows[0][0] == [0] else ""
    return Doubt(f"this could be chance{other}", "iterations", tuple(suspects))


def _alike(incident: Incident) -> Doubt:
    """Why stacks do not show which process is the reason; empty if there are none, or calls are
    recorded, which show by themselves who waits."""
    rows = asked(
        incident,
        ["main_threads"],
        "SELECT activity, count(*) FROM main_threads "
        "WHERE looks > 0 AND moved IS DISTINCT FROM true AND NOT EXISTS (FROM ops) "
        "GROUP BY activity ORDER BY count(*) DESC, activity",
    )
    if not rows:
        return Doubt()
    where = ", ".join(f"{count} in {activity}" for activity, count in rows)
    return Doubt(f"no stack shows a process that the others are waiting for ({where})")


def _seen_once(incident: Incident) -> Doubt:
    """Which processes one look at stacks shows to be elsewhere, where that may be chance."""
    rows = asked(
        incident,
        ["odd_stacks"],
        "SELECT list(process ORDER BY rank), list(rank), any_value(others) FROM odd_stacks "
        "WHERE doubted GROUP BY job",
    )
    if not rows:
        return Doubt()
    ((processes, ranks, others),) = rows
    known = None not in ranks
    whom = ("it" if len(ranks) == 1 else "them") if known else " and ".join(processes)
    against = f"the stacks show {whom} in a different place from {others} others"
    once = "one snapshot can't tell a hang from a running job: take the stacks again"
    return Doubt(once, suspects=(Suspect(blamed(ranks) if known else (), against),))


def asked(incident: Incident, relations: Sequence[str], sql: str) -> list[tuple[Any, ...]]:
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
    if asked(incident, [], "SELECT 1 FROM log_events WHERE kind = 'served' LIMIT 1"):
        return "the log shows no fault of a server that answers; whether it is slow is unknown"
    return "the log shows neither a fault nor steps of training"
