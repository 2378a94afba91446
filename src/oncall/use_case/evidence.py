"""What the use case reads of an incident: one question each, with its SQL.

Where the evidence for a relation is missing or it failed, the answer is that of no rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from oncall.core.diagnosis import Contradiction, Stack
from oncall.core.errors import MissingEvidence, RelationFailed
from oncall.core.places import Cells, Places, host
from oncall.evidence.coverage import GATHERED
from oncall.evidence.incident import Incident
from oncall.evidence.training_tables import IN_FLIGHT
from oncall.rules.language.template import hex_id

Rows = list[tuple[Any, ...]]


def asked(
    incident: Incident, relations: Sequence[str], sql: str, parameters: Sequence[Any] = ()
) -> Rows:
    """The rows, none where the evidence for a relation is missing or it failed."""
    try:
        incident.require(list(relations))
    except (MissingEvidence, RelationFailed):
        return []
    return incident.con.execute(sql, list(parameters)).fetchall()


def _one(incident: Incident, relations: Sequence[str], sql: str) -> Any:
    """The one value; None without rows."""
    return next((value for (value,) in asked(incident, relations, sql)), None)


# ------------------------------------------------------------------------ the job


def places_of(incident: Incident, stages: Mapping[int, int] = MappingProxyType({})) -> Places:
    """Where the job's ranks run, and what they take part in."""
    by_node, by_gpu, by_nic, by_comm, by_stage = (defaultdict[Any, set[int]](set) for _ in range(5))
    for rank, node, gpu, nic in asked(
        incident,
        [],
        "SELECT DISTINCT rank, node, gpu, nic FROM ranks "
        "WHERE rank IS NOT NULL AND node IS NOT NULL",
    ):
        node = node and host(node)
        by_node[node].add(rank)
        by_gpu[node, gpu].add(rank)
        by_nic[node, nic].add(rank)
    members = "SELECT DISTINCT comm, rank FROM comms WHERE rank IS NOT NULL AND comm IS NOT NULL"
    for comm, rank in asked(incident, [], members):
        by_comm[hex_id(comm)].add(rank)
    for rank, stage in stages.items():
        by_stage[stage].add(rank)

    def frozen(of: Mapping[Any, set[int]]) -> dict[Any, Cells]:
        return {key: frozenset(ranks) for key, ranks in of.items()}

    return Places(*map(frozen, (by_node, by_gpu, by_nic, by_comm, by_stage)))


def stages_of(incident: Incident) -> dict[int, int]:
    """The pipeline stage of each rank; empty where it is not known. Where a rank is at fault, its
    calls show the stage that communicators do not."""
    suspected = asked(incident, ["stage_suspects"], "SELECT 1 FROM stage_suspects LIMIT 1")
    layout = "task_layout" if suspected else "stage_layout"
    return dict(
        asked(incident, [layout], f"SELECT rank, stage FROM {layout} WHERE stage IS NOT NULL")
    )


def nodes_of(incident: Incident) -> set[str]:
    """All nodes that are named."""
    tables = ("ranks", "log_events", "thread_stacks", "collectors")
    named = " UNION ".join(f"SELECT node FROM {table}" for table in tables)
    return {node for (node,) in asked(incident, [], named) if node}


def least_ranks(incident: Incident) -> int:
    """How many ranks the job has at least, by what logs say of its groups and tasks."""
    least = "SELECT max(greatest(size, least)) FROM log_causes"
    return int(_one(incident, ["log_causes"], least) or 0)


def gathered_job(incident: Incident) -> str | None:
    """The job as its nodes know it; None unless the evidence is from nodes."""
    exists = f"EXISTS (FROM collectors WHERE source = '{GATHERED}')"
    name: str | None = _one(incident, [], f"SELECT max(job) FROM jobs WHERE {exists}")
    return name


def runs_under_slurm(incident: Incident) -> bool:
    """Whether Slurm's own lines are in the logs."""
    said = "regexp_matches(text, '(srun|slurmstepd): error:')"
    return bool(_one(incident, [], f"SELECT count(*) > 0 FROM log_events WHERE {said}"))


def contradictions_of(incident: Incident) -> tuple[Contradiction, ...]:
    """What contradicts itself in the evidence. Raises RelationFailed."""
    try:
        incident.require(["contradictions"])
    except MissingEvidence:
        return ()
    rows = incident.con.execute(
        "SELECT what, count, example, tables, coalesce(ranks, []) "
        "FROM contradictions ORDER BY count DESC, what"
    ).fetchall()
    return tuple(
        Contradiction(what, count, example, *map(tuple, named))
        for what, count, example, *named in rows
    )


def compared_of(incident: Incident, table: str, number: str) -> int:
    """How many of something a table holds, such as `count(DISTINCT rank)`."""
    return int(_one(incident, [], f"SELECT {number} FROM {table}"))


# ---------------------------------------------------------------------- what stopped


def waiting_ranks(incident: Incident) -> tuple[int, bool, str | None]:
    """How many ranks wait, whether the job is known to go on all the same, and what speaks for and
    against that."""
    rows = asked(
        incident,
        ["front", "job_progress"],
        "SELECT count(DISTINCT rank), bool_and(coalesce(moved AND state = 'moving', false)), "
        "any_value(why) FROM front LEFT JOIN job_progress USING (job)",
    )
    return rows[0] if rows else (0, False, None)


def silent_until_written(incident: Incident) -> float | None:
    """For how many seconds nothing had happened when the dumps were written, if never before for so
    long."""
    last = "SELECT max(later_ns) / 1e9 FROM dump_times WHERE silent"
    return next((seconds for (seconds,) in asked(incident, ["dump_times"], last)), None)


def awaited_ranks(incident: Incident) -> list[int]:
    """For whom ranks wait that are absent or silent."""
    roots = "SELECT DISTINCT rank FROM hang_roots WHERE how IN ('absent', 'silent') ORDER BY rank"
    return [rank for (rank,) in asked(incident, ["hang_roots"], roots)]


def last_calls(incident: Incident, comm: int | None, ranks: Sequence[int]) -> list[int]:
    """The numbers of the last collectives that these ranks called on a communicator."""
    last = (
        "SELECT DISTINCT entered_seq FROM frontier "
        "WHERE comm = ? AND list_contains(?, rank) AND entered_seq IS NOT NULL"
    )
    return [seq for (seq,) in asked(incident, ["frontier"], last, [comm, list(ranks)])]


def first_to_end(incident: Incident) -> tuple[int, list[int]] | None:
    """A rank that never made calls which completed, and whose; None if nobody's did, or somebody
    went on after."""
    ends = "SELECT rank, ended FROM uncalled_ends ORDER BY len(ended) DESC, rank LIMIT 1"
    return next(iter(asked(incident, ["uncalled_ends"], ends)), None)


def only_calls(incident: Incident) -> bool:
    """Whether logs of calls do not show how the job went on."""
    known = "SELECT bool_and(NOT completion AND len(live) = 0) FROM knowledge"
    return bool(_one(incident, ["knowledge"], known))


def counters_say(incident: Incident) -> str:
    """Why counters, where no operation is recorded, do not show that the job moves; empty if they
    do."""
    return str(_one(incident, [], _BY_COUNTERS))


_BY_COUNTERS = """
    WITH looks AS (
        SELECT comm, rank, count(DISTINCT launched) AS counts FROM launches
        WHERE launched IS NOT NULL AND at_ns IS NOT NULL GROUP BY comm, rank),
    unequal AS (
        SELECT comm FROM launches WHERE launched IS NOT NULL
        GROUP BY comm, at_ns HAVING min(launched) < max(launched)),
    times AS (
        SELECT count(DISTINCT at_ns) AS looks, (max(at_ns) - min(at_ns)) / 1e9 AS span_s
        FROM launches WHERE launched IS NOT NULL)
    SELECT CASE WHEN EXISTS (FROM ops) OR NOT EXISTS (FROM launches) THEN ''
        WHEN EXISTS (FROM recordings WHERE kind = 'nccl_ras' AND problem IS NOT NULL)
            THEN 'not every answer of NCCL RAS could be read'
        WHEN EXISTS (FROM recordings WHERE kind = 'nccl_ras') AND NOT EXISTS (FROM unequal)
            AND NOT EXISTS (FROM launches WHERE state <> 'running') AND looks <= 1
            THEN 'all ' || (SELECT count(DISTINCT rank) FROM launches) || ' ranks answer NCCL RAS, '
                || 'and their states and counts agree; one look cannot show whether they move'
        WHEN looks = 0 THEN 'no counts of operations are recorded: the job may be stopped'
        WHEN looks = 1 THEN 'one look cannot show whether the job moves'
        WHEN NOT EXISTS (FROM looks WHERE counts > 1)
            THEN 'no rank launched an operation between ' || looks || ' looks'
                || CASE WHEN span_s >= 0.1 THEN printf(' (%.0f s)', span_s) ELSE '' END
        ELSE '' END
    FROM times
"""


# ------------------------------------------------------------------------ what is slow


class Shown(NamedTuple):
    """What operations show of who slows the job."""

    part: bool  # iterations were timed, and not all that made them longer is known
    iterations: bool  # were timed, or of all ranks
    calls_hide: bool
    baselines: bool
    durations: bool
    devices_hide: bool
    fewest_calls: int | None  # of one operation


def shown_of(incident: Incident) -> Shown:
    """Raises MissingEvidence, RelationFailed."""
    incident.require(["lost_time", "replayed_jobs", "round_baselines", "rounds", "device_lags"])
    (row,) = incident.con.execute(
        "SELECT EXISTS (SELECT timed FROM replayed_jobs WHERE timed AND NOT whole "
        "UNION ALL SELECT timed FROM lost_time WHERE cause = 'open' AND timed), "
        "EXISTS (FROM replayed_jobs WHERE timed OR whole), EXISTS (FROM replayed_jobs), "
        "EXISTS (FROM round_baselines), EXISTS (FROM rounds WHERE basis = 'duration'), "
        "EXISTS (FROM device_lags WHERE hidden), "
        "(SELECT min(calls) FROM "
        "(SELECT count(DISTINCT seq) AS calls FROM rounds GROUP BY job, comm, op))"
    ).fetchall()
    return Shown(*row)


def unexplained_loss(incident: Incident) -> tuple[float, str] | None:
    """The share of the time that is lost for reasons which operations do not show, and since when
    (UTC)."""
    rows = asked(
        incident,
        ["lost_time"],
        "SELECT share, strftime(make_timestamp_ns(at_ns), '%H:%M:%S') FROM lost_time "
        "WHERE cause = 'unexplained' ORDER BY ALL DESC",
    )
    return next(iter(rows), None)


def possible_losses(incident: Incident) -> Rows:
    """(ranks, share, low, high, whether they left a recording) of whom the others may have waited
    for, most first."""
    return asked(
        incident,
        ["lost_time", "group_delays"],
        "SELECT list(rank ORDER BY rank) AS ranks, max(share) AS share, any_value(low), "
        "any_value(high), true FROM lost_time WHERE cause = 'perhaps' GROUP BY job, entry "
        "UNION ALL SELECT unseen, max(lost_share), max(lost_low), max(lost_high), false "
        "FROM group_delays WHERE unseen IS NOT NULL GROUP BY job, unseen "
        "ORDER BY share DESC, ranks",
    )


def late_because(incident: Incident) -> dict[int, str]:
    """The kind of work that a profile shows to take longer on a rank the others may wait for."""
    return dict(asked(incident, ["delay_reasons"], "SELECT rank, kind FROM delay_reasons"))


def account_of(incident: Incident) -> tuple[int | None, bool | None]:
    """How many iterations the account of lost time is of, and whether they were timed."""
    account = "SELECT max(of_iterations), bool_or(timed) FROM lost_time WHERE cause = 'account'"
    rows = asked(incident, ["lost_time"], account)
    return rows[0] if rows else (None, None)


# ---------------------------------------------------------------------- stacks and logs


def doing(incident: Incident) -> dict[int, tuple[str, str]]:
    """What each rank that was looked at does, and its frame."""
    looked = "SELECT rank, activity, frame FROM main_threads WHERE looks > 0"
    rows = asked(incident, ["main_threads"], looked)
    return {rank: (activity, frame) for rank, activity, frame in rows}


def stacks_are_known(incident: Incident) -> tuple[bool, bool]:
    """Whether any process was looked at, and whether several are known that all do the same."""
    known = (
        "SELECT coalesce(bool_or(looks > 0), false), count(*) > 1 AND count(DISTINCT activity) = 1 "
        "FROM main_threads"
    )
    rows = asked(incident, ["main_threads"], known)
    return rows[0] if rows else (False, False)


def unmoved_activities(incident: Incident) -> Rows:
    """(activity, how many processes) of those not seen to move, where no calls are recorded."""
    return asked(
        incident,
        ["main_threads"],
        "SELECT activity, count(*) FROM main_threads "
        "WHERE looks > 0 AND moved IS DISTINCT FROM true AND NOT EXISTS (FROM ops) "
        "GROUP BY activity ORDER BY count(*) DESC, activity",
    )


def seen_apart(incident: Incident) -> Rows:
    """(processes, ranks, what they do and where, how many others) that one look at stacks shows to
    be elsewhere, by job."""
    return asked(
        incident,
        ["odd_stacks"],
        "SELECT list(process ORDER BY rank), list(rank), "
        "string_agg(DISTINCT activity || coalesce(' (' || frame || ')', ''), ', '), "
        "any_value(others) "
        "FROM odd_stacks WHERE doubted GROUP BY job",
    )


def stacks_of(incident: Incident, ranks: Iterable[int]) -> dict[int, Stack]:
    """Where each rank's program was last: its main thread if it was looked at, else a call."""
    wanted = [sorted(ranks)]
    calls = asked(incident, [], _CALL_STACKS, wanted)
    threads = asked(
        incident,
        ["main_threads"],
        "SELECT rank, activity, frames FROM main_threads "
        "WHERE looks > 0 AND list_contains(?, rank)",
        wanted,
    )
    return {
        **{rank: Stack(rank, _call(*call), tuple(frames)) for rank, *call, frames in calls},
        **{
            rank: Stack(rank, f"in {activity}", tuple(frames)) for rank, activity, frames in threads
        },
    }


# One stack a rank: that of its oldest operation in flight, else of its last one.
_CALL_STACKS = f"""
    WITH calls AS (
        SELECT s.rank, s.frames, s.seq, o.op, c.role, c.name,
               coalesce(o.in_flight, false) AS in_flight,
               coalesce(o.enqueued_ns, o.started_ns) AS at_ns
        FROM stacks s
        LEFT JOIN (SELECT *, {IN_FLIGHT} AS in_flight FROM ops) o
            ON (o.rank, o.comm, o.seq, o.kind) = (s.rank, s.comm, s.seq, s.kind)
        LEFT JOIN comms c ON (c.rank, c.comm) = (s.rank, s.comm)
        WHERE len(s.frames) > 0 AND list_contains(?, s.rank))
    SELECT rank, op, seq, coalesce(role, 'communicator ' || name), in_flight, frames
    FROM calls
    QUALIFY row_number() OVER (
        PARTITION BY rank
        ORDER BY in_flight DESC, CASE WHEN in_flight THEN at_ns ELSE -at_ns END NULLS LAST,
                 seq DESC) = 1
"""


def _call(op: str | None, seq: int | None, group: str | None, in_flight: bool) -> str:
    call = " ".join(str(part) for part in (op, seq) if part is not None) or "an unnamed call"
    # Each communicator numbers its own operations.
    where = f"{call} of {group}" if group else call
    return f"in {where}" if in_flight else f"last seen in {where}"


def has_text_of_hosts(incident: Incident) -> bool:
    """Whether snapshots of hosts or ports were read."""
    kinds = "kind IN ('host_text', 'port_counters')"
    return bool(_one(incident, [], f"SELECT count(*) > 0 FROM recordings WHERE {kinds}"))


def logged_progress(incident: Incident) -> tuple[bool | None, int | None, int | None] | None:
    """Whether a log ends as training does, its steps, and the last of them; None if they could not
    be read."""
    steps = """
        SELECT bool_or(finished AND (steps > 0 OR job IN (
            SELECT job FROM log_events WHERE kind <> 'reported' GROUP BY job, path
            HAVING arg_max(code, line) = 'passed'))), sum(steps), max(last_iteration)
        FROM log_progress"""
    return next(iter(asked(incident, ["log_progress"], steps)), None)


def last_words(incident: Incident) -> tuple[str, int, str, str] | None:
    """File and line of the first that reports a failure, or a loss that is no number, and after
    which no step came: in its log, or by the clock if that has none; what that is, and its text."""
    failure = """
        SELECT e.path, e.line, if(e.kind = 'loss', 'shows a loss that is no number',
            'reports an error that no rule knows'), e.text FROM log_events e
        WHERE (e.code = 'failure' OR e.kind = 'loss') AND NOT EXISTS (
            FROM logged_steps s WHERE s.job = e.job AND if(
                e.path IN (SELECT path FROM logged_steps),
                s.path = e.path AND s.line > e.line, s.at_ns > e.sort_ns))
        ORDER BY e.sort_ns, e.path, e.line LIMIT 1
    """
    return next(iter(asked(incident, [], failure)), None)


def at_the_end(incident: Incident) -> tuple[str | None, list[int]]:
    """The last line of the log that was written last, behind its last step; and the few ranks whose
    steps end two steps or more before the others'."""
    last = """
        SELECT (SELECT arg_max(text, (coalesce(sort_ns, 0), path)) FROM log_events
            WHERE code = 'last'), coalesce(list(rank ORDER BY rank) FILTER (behind), [])
        FROM (
            SELECT *, (SELECT count(DISTINCT iteration) FROM logged_steps
                WHERE iteration > last) > 1 AS behind
            FROM (SELECT rank, max(iteration) AS last FROM logged_steps
                WHERE rank IS NOT NULL GROUP BY rank))
    """
    text, behind = next(iter(asked(incident, [], last)), (None, []))
    return text, behind


def answers_requests(incident: Incident) -> bool:
    """Whether the log is that of a server that answers."""
    return bool(asked(incident, [], "SELECT 1 FROM log_events WHERE kind = 'served' LIMIT 1"))


class PastFault(NamedTuple):
    """One former fault, as an archive has it."""

    rulebook: str
    verdict: str
    node: str | None
    component: str | None
    ago_ns: int
    fixed_by: str | None


def past_faults(incident: Incident) -> list[PastFault] | None:
    """Those of the archive, the newest first; None without an archive."""
    try:
        incident.require(["past_findings"])
    except (MissingEvidence, RelationFailed):
        return None
    rows = incident.con.execute(
        "SELECT rulebook, verdict, node, component, ago_ns, fixed_by FROM past_findings "
        "ORDER BY ago_ns, component"
    ).fetchall()
    return [PastFault(*row) for row in rows]
