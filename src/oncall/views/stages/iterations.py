"""What is drawn of iterations, read from an incident: which there are, and one as a timeline."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from itertools import groupby

from oncall.core.diagnosis import Finding, Picture
from oncall.core.errors import NotRecorded, UsageError
from oncall.core.printable import clean
from oncall.evidence.incident import Incident
from oncall.views.stages.timeline import COMPUTE, Box, Lane, Timeline

NO_STAGES = (
    "no pipeline iterations found; NCCL calls with their communicators, or a trace that names "
    "its tasks, show them"
)
PICTURE: Picture = "timeline"
MOST_LANES = 64
_RELATIONS = (
    "stage_work",
    "stage_graph",
    "training_iterations",
    "slow_stages",
    "incomplete_stages",
    "operations",
)
# Every recording ends within an iteration: it hangs if nothing happens for as long as one takes.
# Of a running job tasks are known up to the last seal only, but calls up to now.
_STUCK = """
    SELECT * REPLACE (least(silent_ns, quiet_ns) AS silent_ns)
    FROM incomplete_stages LEFT JOIN (
        SELECT job, max(observed_ns) - max(greatest(entered_ns, ended_ns)) AS quiet_ns
        FROM operations GROUP BY job) USING (job)
    WHERE first AND least(silent_ns, quiet_ns) > coalesce(baseline_ns, 0)
"""


@dataclass(frozen=True)
class IterationLine:
    """One iteration of a list. `duration_ns` is None where it is not over."""

    iteration: int
    started_ns: int
    duration_ns: int | None
    baseline_ns: int | None
    slow: bool
    whole: bool


def has_stages(incident: Incident) -> bool:
    """Whether any rank's tasks are known; makes ready what is read here."""
    incident.provide(_RELATIONS)
    return incident.rows("training_iterations") > 0


def iterations(incident: Incident) -> tuple[IterationLine, ...]:
    """All iterations, in order. `has_stages` comes first."""
    rows = incident.con.execute(
        "SELECT iteration, started_ns, CASE WHEN whole THEN duration_ns END, "
        "baseline_ns::BIGINT, coalesce(slow, false), coalesce(whole, false) "
        "FROM training_iterations ORDER BY iteration"
    ).fetchall()
    return tuple(IterationLine(*row) for row in rows)


def worst_iteration(incident: Incident) -> int:
    """One in which a task does not end, else the one that lost most time to a stage (the one in
    the finding), else the slow iteration that lost most, else the last whole one.

    Raises UsageError if none is known.
    """
    found = _first_known(
        incident,
        f"SELECT min(iteration) FROM ({_STUCK})",
        "SELECT arg_max(iteration, (saved_ns, excess_ns)) FROM slow_stages",
        "SELECT arg_max(iteration, excess_ns) FROM training_iterations WHERE slow",
        "SELECT coalesce(max(iteration) FILTER (whole), max(iteration)) FROM training_iterations",
    )
    if found is None:
        raise NotRecorded(NO_STAGES)
    return found


def _first_known(incident: Incident, *queries: str, **parameters: int) -> int | None:
    """The first answer of queries for a number that is not NULL."""
    for sql in queries:
        ((found,),) = incident.con.execute(sql, parameters).fetchall()
        if found is not None:
            return int(found)
    return None


def iteration_at(incident: Incident, at_ns: int) -> int | None:
    """The iteration that goes on then; None before the first. `has_stages` comes first."""
    sql = "SELECT arg_max(iteration, started_ns) FROM training_iterations WHERE started_ns <= $at"
    return _first_known(incident, sql, at=at_ns)


def worst_replica(incident: Incident, iteration: int, blamed: Collection[int] = ()) -> int | None:
    """The pipeline that keeps the others waiting: of the `blamed` ranks, with a task that made it
    slow or hangs, else the last one to end."""
    return _first_known(
        incident,
        "SELECT min(coalesce(replica, 0)) FROM stage_work WHERE iteration = $iteration "
        f"AND list_contains({[*map(int, blamed)]}, rank)",
        f"SELECT min(replica) FROM ({_STUCK}) WHERE iteration = $iteration",
        "SELECT arg_max(replica, excess_ns) FROM slow_stages WHERE iteration = $iteration",
        "SELECT arg_max(replica, ended_ns) FROM stage_graph WHERE iteration = $iteration",
        "SELECT min(replica) FROM stage_work WHERE iteration = $iteration",
        iteration=iteration,
    )


def timeline(
    incident: Incident,
    iteration: int | None = None,
    replicas: Iterable[int] | None = None,
    *,
    every_rank: bool = False,
    blamed: Collection[int] = (),
) -> Timeline:
    """One iteration; None: the worst. One lane per stage, shown by the rank that decides it,
    or with `every_rank` one per rank. `replicas`: which pipelines, None for the one
    that others wait for. `blamed`: ranks that the diagnosis names; where their tasks are marked, no
    others are.

    Raises UsageError where the iteration or pipeline is not there.
    """
    if not has_stages(incident):
        raise NotRecorded(NO_STAGES)
    if iteration is None:
        iteration = worst_iteration(incident)
    found = incident.con.execute(
        "SELECT job, started_ns, ended_ns, duration_ns, baseline_ns::BIGINT, coalesce(slow, false) "
        "FROM training_iterations WHERE iteration = ?",
        [iteration],
    ).fetchall()
    if not found:
        ((first, last),) = incident.con.execute(
            "SELECT min(iteration), max(iteration) FROM training_iterations"
        ).fetchall()
        raise UsageError(f"there is no iteration {iteration}; iterations are {first} to {last}")
    if replicas is None:
        worst = worst_replica(incident, iteration, blamed)
        replicas = [] if worst is None else [worst]
    lanes = _lanes(incident, iteration, list(replicas), every_rank, blamed)
    if not lanes:
        raise UsageError(f"iteration {iteration} has no pipeline {', '.join(map(str, replicas))}")
    job, started_ns, ended_ns, duration_ns, baseline_ns, slow = found[0]
    lanes = _with_stopped(incident, iteration, started_ns, lanes)
    pipelines, chunks, error_ns, seen_ns = _about(incident, iteration)
    over = _is_over(incident, iteration, lanes)
    silent = f"SELECT max(silent_ns) FROM ({_STUCK}) WHERE iteration = $iteration"
    silent_ns = _first_known(incident, silent, iteration=iteration)
    return Timeline(
        job=clean(job or ""),
        iteration=iteration,
        started_ns=started_ns,
        ended_ns=ended_ns if over else None,
        duration_ns=duration_ns if over else None,
        baseline_ns=baseline_ns,
        slow=slow,
        lanes=lanes[:MOST_LANES],
        pipelines=pipelines,
        chunks=chunks,
        left_out=max(len(lanes) - MOST_LANES, 0),
        clock_error_ns=error_ns,
        cut_ns=None if over else seen_ns,
        silent_ns=None if over else silent_ns,
    ).blaming(blamed)


def _is_over(incident: Incident, iteration: int, lanes: tuple[Lane, ...]) -> bool:
    """Whether its ranks went on to the next one, or have done all tasks that others have."""
    ((later,),) = incident.con.execute(
        "SELECT count(*) FROM stage_work WHERE iteration > ? AND list_contains(?, rank)",
        [iteration, [lane.rank for lane in lanes]],
    ).fetchall()
    done = {
        sum(box.task in COMPUTE and box.ended_ns is not None for box in lane.boxes)
        for lane in lanes
    }
    is_open = any(box.ended_ns is None for lane in lanes for box in lane.boxes)
    return bool(later) or (len(done) == 1 and not is_open)


def _about(incident: Incident, iteration: int) -> tuple[int, int, int | None, int | None]:
    """Pipelines, chunks on a rank, the clocks' error, and the last instant of anything."""
    ((pipelines, chunks, error_ns, seen_ns),) = incident.con.execute(
        """
        SELECT count(DISTINCT coalesce(replica, 0)), coalesce(max(chunk), 0) + 1,
            max(clock_error_ns),
            (SELECT max(greatest(started_ns, ended_ns, last_call_ns)) FROM stage_work)
        FROM stage_work WHERE iteration = ?
        """,
        [iteration],
    ).fetchall()
    return pipelines, chunks, error_ns, seen_ns


def _lanes(
    incident: Incident,
    iteration: int,
    replicas: list[int],
    every_rank: bool,
    blamed: Collection[int],
) -> tuple[Lane, ...]:
    rows = incident.con.execute(
        f"""
        WITH work AS (
            SELECT * REPLACE (coalesce(replica, 0) AS replica, coalesce(chunk, 0) AS chunk,
                coalesce(stage, 0) AS stage)
            FROM stage_work WHERE iteration = $iteration
                AND list_contains($replicas, coalesce(replica, 0))),
        graph AS (FROM stage_graph WHERE iteration = $iteration),
        slow AS (
            SELECT replica, stage, chunk, micro_batch, task, rank, started_ns, duration_ns,
                expected_ns, coalesce(network, false) AS moved FROM slow_stages
            WHERE iteration = $iteration),
        guilty AS (
            SELECT replica, stage, chunk, micro_batch, task, rank FROM slow WHERE NOT moved
            UNION SELECT replica, stage, chunk, micro_batch,
                task || CASE WHEN network THEN '_send' ELSE '' END, rank
            FROM ({_STUCK}) WHERE iteration = $iteration),
        shown AS (
            SELECT rank, node, stage, replica, tensor_rank, task, chunk, micro_batch, started_ns,
                ended_ns, peer, NULL AS expected_ns FROM work
            UNION ALL  -- a slow transfer ends where the task begins that works on it
            SELECT w.rank, w.node, w.stage, w.replica, w.tensor_rank, 'transfer', w.chunk,
                w.micro_batch, s.started_ns - s.duration_ns, s.started_ns, NULL, s.expected_ns
            FROM work w JOIN slow s ON s.moved
                AND (w.replica, w.stage, w.chunk, w.micro_batch, w.task)
                = (s.replica, s.stage, s.chunk, s.micro_batch, s.task)),
        decides AS (
            SELECT replica, stage, coalesce(
                min(rank) FILTER (list_contains($blamed, rank)),
                (SELECT min(rank) FROM guilty u
                    WHERE (u.replica, u.stage) = (w.replica, w.stage)),
                (SELECT mode(rank) FROM graph g
                    WHERE (g.replica, g.stage) = (w.replica, w.stage) AND critical),
                arg_min(rank, coalesce(tensor_rank, 0))) AS rank,
                count(DISTINCT rank) AS ranks
            FROM work w GROUP BY replica, stage)
        SELECT w.rank, w.node, w.stage, w.replica, CASE WHEN $every THEN 1 ELSE d.ranks END,
            w.task, w.chunk, w.micro_batch, w.started_ns, w.ended_ns, w.peer,
            coalesce(g.critical AND (NOT $every OR g.rank = w.rank), false), g.slack_ns, g.wait_ns,
            coalesce(g.expected_ns, w.expected_ns)::BIGINT,
            w.task = 'transfer' OR u.task IS NOT NULL AND coalesce(u.rank = w.rank, true)
        FROM shown w JOIN decides d ON (d.replica, d.stage) = (w.replica, w.stage)
            AND ($every OR d.rank = w.rank)
        LEFT JOIN graph g ON (g.replica, g.stage, g.chunk, g.micro_batch, g.task)
            = (w.replica, w.stage, w.chunk, w.micro_batch, w.task)
        LEFT JOIN guilty u ON (u.replica, u.stage, u.chunk, u.micro_batch, u.task)
            = (w.replica, w.stage, w.chunk, w.micro_batch, w.task)
        WHERE w.started_ns IS NOT NULL
        ORDER BY w.replica, w.stage, w.tensor_rank, w.rank, w.started_ns, w.ended_ns NULLS LAST,
            w.task
        """,
        {
            "iteration": iteration,
            "replicas": replicas,
            "every": every_rank,
            "blamed": [*map(int, blamed)],
        },
    ).fetchall()
    return tuple(
        Lane(rank, clean(node or ""), stage, replica, tuple(Box(*row[5:]) for row in group), ranks)
        for (rank, node, stage, replica, ranks), group in groupby(rows, lambda row: row[:5])
    )


def _with_stopped(
    incident: Incident, iteration: int, began_ns: int, lanes: tuple[Lane, ...]
) -> tuple[Lane, ...]:
    """The lanes, with the task in which a pipeline stopped before it made any call of it: nobody
    recorded when it began, so it is drawn from the iteration's begin."""
    rows = incident.con.execute(
        f"SELECT replica, stage, rank, node, task, chunk, micro_batch FROM ({_STUCK}) "
        "WHERE iteration = ? AND rank IS NOT NULL AND NOT network AND list_contains(?, replica)",
        [iteration, sorted({lane.replica for lane in lanes})],
    ).fetchall()
    known = {(lane.replica, lane.stage) for lane in lanes if lane.blamed}
    stopped = [
        Lane(
            rank=rank,
            node=clean(node or ""),
            stage=stage,
            replica=replica,
            boxes=(Box(task, chunk or 0, micro_batch, began_ns, None, blamed=True),),
        )
        for replica, stage, rank, node, task, chunk, micro_batch in rows
        if (replica, stage) not in known
    ]
    if not stopped:
        return lanes
    instead = {lane.rank for lane in stopped}  # a lane of a rank whose earlier tasks are drawn
    before = {lane.rank: lane.boxes for lane in lanes if lane.rank in instead}
    drawn = [replace(one, boxes=(*before.get(one.rank, ()), *one.boxes)) for one in stopped]
    others = [lane for lane in lanes if lane.rank not in instead]
    return tuple(sorted([*others, *drawn], key=lambda lane: (lane.replica, lane.stage, lane.rank)))


# ------------------------------------------------------------------- findings


def reported_iteration(incident: Incident, finding: Finding) -> tuple[int, int | None] | None:
    """The iteration in which a finding shows best, and its pipeline."""
    named = [one.where for one in finding.blame]
    for where in (finding.case, *named):
        if where.get("iteration") is not None:
            replica = where.get("replica")
            return int(where["iteration"]), None if replica is None else int(replica)
    ranks, stages = (
        [int(where[name]) for where in named if where.get(name) is not None]
        for name in ("rank", "stage")
    )
    rows = incident.con.execute(
        f"""
        SELECT iteration, replica FROM (
            SELECT iteration, replica, stage, rank, 1e18 AS weight FROM ({_STUCK})
            UNION ALL SELECT iteration, replica, stage, rank, sum(excess_ns) FROM slow_stages
            GROUP BY ALL)
        ORDER BY list_contains($ranks, rank) DESC, list_contains($stages, stage) DESC,
            weight DESC, iteration LIMIT 1
        """,
        {"ranks": ranks, "stages": stages},
    ).fetchall()
    return next(((int(iteration), replica) for iteration, replica in rows), None)
