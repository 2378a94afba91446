"""Where chains of waiting end in recordings of calls alone: whose next call is waited for.

A rank waits for the members that have not made a joint call it has made, and in a Recv for who has
not called the Send. Its last call may also be held up by a member blocked elsewhere, where the host
calls ahead of its device. If the job hangs, a rank that waits for no other is where.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import duckdb

from oncall.analysis.common.graph import reaching, sinks
from oncall.evidence import relation


@relation(
    "last_calls",
    reads=["call_fronts"],
    optional=["operations", "joint_calls"],
    empty_without=["call_fronts"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("rank", "INTEGER", "", "global rank"),
        ("comm", "UBIGINT", "", "communicator"),
        ("seq", "BIGINT", "", "its number there"),
        ("op", "VARCHAR", "", "what it called last, or in the same group call"),
        ("count", "BIGINT", "elements", "its size"),
        ("called_ns", "BIGINT", "ns", "when, on the rank's own clock"),
        ("joint", "BOOLEAN", "", "all members of the communicator make this call"),
    ],
    source="VenusTrace Algorithm 1 (line 12)",
)
def last_calls() -> str:
    """What each rank called last; of a group call each Send and Recv."""
    return """
        WITH calls AS (
            FROM operations SEMI JOIN call_fronts USING (job) WHERE called_ns IS NOT NULL),
        newest AS (
            SELECT job, rank, called_ns AS last_ns, comm, group_id FROM calls
            QUALIFY row_number() OVER (
                PARTITION BY job, rank ORDER BY called_ns DESC, comm, seq DESC, group_id) = 1)
        SELECT c.job, c.rank, c.comm, c.seq, c.op, c.count, c.called_ns,
            j.rank IS NOT NULL AS joint
        FROM calls c JOIN newest n USING (job, rank)
        LEFT JOIN joint_calls j ON j.job = c.job AND j.comm = c.comm AND j.seq = c.seq
            AND j.rank = c.rank
        WHERE c.called_ns = n.last_ns
            OR (c.kind = 'p2p' AND c.comm IS NOT DISTINCT FROM n.comm AND c.group_id = n.group_id)
    """


@relation(
    "called_transfers",
    reads=["stage_work"],
    empty_without=["stage_work"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("rank", "INTEGER", "", "who called a Send or Recv between stages"),
        ("peer", "INTEGER", "", "its other side"),
        ("receives", "BOOLEAN", "", "it is a Recv"),
        ("answered", "BOOLEAN", "", "the other side has called its half"),
        ("called_ns", "BIGINT", "ns", "when it was called, common time"),
        ("ahead", "BOOLEAN", "", "by the schedule, ranks may receive before they need it"),
    ],
    source="VenusTrace 3.2.1 (pipeline communication), Algorithm 1",
)
def called_transfers() -> str:
    """The transfers between pipeline stages, matched by what they are for."""
    return """
        WITH shape AS (
            SELECT job, max(stage) + 1 AS pp, coalesce(max(chunk), 0) > 0 AS interleaved
            FROM stage_work GROUP BY job HAVING pp > 1),
        halves AS (
            SELECT DISTINCT w.job, coalesce(replica, 0) AS replica, tensor_rank, rank, iteration,
                micro_batch, task LIKE '%_recv' AS receives, task LIKE 'forward%' AS forward,
                coalesce(chunk, 0) * pp + stage AS here, started_ns AS called_ns, pp,
                interleaved, here + CASE WHEN forward = receives THEN -1 ELSE 1 END AS there
            FROM stage_work w JOIN shape USING (job)
            WHERE (task LIKE '%_recv' OR task LIKE '%_send') AND started_ns IS NOT NULL),
        seats AS (
            SELECT DISTINCT job, coalesce(replica, 0) AS replica, tensor_rank, stage, rank
            FROM stage_work WHERE stage IS NOT NULL)
        SELECT o.job, o.rank, s.rank AS peer, o.receives, h.rank IS NOT NULL AS answered,
            o.called_ns, o.interleaved AS ahead
        FROM halves o JOIN seats s ON s.job = o.job AND s.replica = o.replica
            AND s.tensor_rank IS NOT DISTINCT FROM o.tensor_rank AND s.stage = (o.there + pp) % pp
        LEFT JOIN halves h ON h.job = o.job AND h.rank = s.rank AND h.iteration = o.iteration
            AND h.micro_batch IS NOT DISTINCT FROM o.micro_batch AND h.receives <> o.receives
            AND h.forward = o.forward AND h.here = o.there
    """


@relation(
    "open_transfers",
    reads=["last_calls", "called_transfers"],
    empty_without=["last_calls", "called_transfers"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("rank", "INTEGER", "", "who is at a Send or Recv between stages"),
        ("peer", "INTEGER", "", "its other side"),
        ("receives", "BOOLEAN", "", "it is a Recv"),
        ("answered", "BOOLEAN", "", "the other side has called its half"),
        ("last", "BOOLEAN", "", "it is among the rank's last calls"),
    ],
    source="VenusTrace 3.2.1 (pipeline communication), Algorithm 1",
)
def open_transfers() -> str:
    """The transfers between pipeline stages that ranks called last, and Recvs without a Send: what
    the host called behind those waits on the device."""
    return """
        SELECT job, rank, peer, receives, answered,
            EXISTS (FROM last_calls l WHERE l.job = t.job AND l.rank = t.rank
                AND l.called_ns = t.called_ns) AS last
        FROM called_transfers t WHERE last OR (receives AND NOT answered AND NOT ahead)
    """


_COLUMNS = [
    ("job", "VARCHAR", "", "the job"),
    ("rank", "INTEGER", "", "a rank that waits for no other, and that others wait for"),
    ("joint", "BOOLEAN", "", "its last call is one that all members made; else a Send or Recv"),
    ("answered", "BOOLEAN", "", "both ends of that transfer are called; NULL: not known"),
    ("comm", "UBIGINT", "", "communicator of its last call"),
    ("seq", "BIGINT", "", "its number there"),
    ("op", "VARCHAR", "", "what it called last"),
    ("waiting", "BIGINT", "ranks", "ranks of the job that wait because of it, as far as observed"),
    ("others", "BIGINT", "ranks", "ranks with logs that wait for none of these"),
]


@relation(
    "awaited_callers",
    reads=["call_fronts", "last_calls"],
    optional=["open_transfers"],
    empty_without=["last_calls"],
    columns=_COLUMNS,
    source="VenusTrace Algorithm 1, over all communicators",
)
def awaited_callers(con: duckdb.DuckDBPyConnection) -> Mapping[str, Any]:
    """Ranks whose next call others wait for and that wait for no other themselves."""
    rows: list[tuple[Any, ...]] = []
    for job, graph in _graphs(con).items():
        rows += [(job, *row) for row in graph.ends()]
    return {name: [row[i] for row in rows] for i, (name, *_) in enumerate(_COLUMNS)}


class _Graph:
    """The waits in one job: ranks, communicators in between, and joint calls."""

    def __init__(self) -> None:
        self.waits: dict[Any, list[Any]] = defaultdict(list)
        self.held: dict[Any, list[Any]] = defaultdict(list)  # by a member blocked elsewhere
        self.last: dict[int, tuple[Any, ...]] = {}
        self.behind: set[int] = set()
        self.unobserved: set[int] = set()  # communicators with members without a log

    def ends(self) -> list[tuple[Any, ...]]:
        """Rows of `awaited_callers` without the job."""
        edges = {node: [*self.waits[node], *self.held[node]] for node in {*self.waits, *self.held}}
        edges |= {rank: [] for rank in self.last if rank not in edges}
        found = []
        for component in sinks(edges):
            free = [n for n in component if n in self.last and not self.waits.get(n)]
            for rank in sorted(free):
                joint, answered, comm, *call = self.last[rank]
                if comm in self.unobserved or not (rank in self.behind or answered):
                    continue
                reached = reaching(self.waits, [rank])
                waiting = sum(n in self.last for n in reached) - 1
                found.append((rank, joint, answered, comm, *call, waiting))
        waiting_or_found = reaching(self.waits, [rank for rank, *_ in found])
        others = sum(rank not in waiting_or_found for rank in self.last)
        return [(*row, others) for row in found]


def _graphs(con: duckdb.DuckDBPyConnection) -> dict[str, _Graph]:
    """The graph of each job."""
    graphs: dict[str, _Graph] = defaultdict(_Graph)
    ahead: dict[str, set[int]] = defaultdict(set)
    for job, comm, rank, is_behind, is_ahead, silent_members in con.execute(
        "SELECT job, comm, rank, behind, ahead, silent_members FROM call_fronts ORDER BY ALL"
    ).fetchall():
        graph = graphs[job]
        place = ("communicator", comm)
        if is_ahead:
            graph.waits[rank].append(place)
            ahead[job].add(rank)
        if is_behind:
            graph.waits[place].append(rank)
            graph.behind.add(rank)
        if silent_members:
            graph.unobserved.add(comm)
    answers: dict[tuple[str, int], bool] = {}
    for job, rank, peer, receives, answered, last in con.execute(
        "SELECT job, rank, peer, receives, answered, last FROM open_transfers ORDER BY ALL"
    ).fetchall():
        if last:
            answers[job, rank] = answers.get((job, rank), True) and answered
        if not answered:
            (graphs[job].waits if receives else graphs[job].held)[rank].append(peer)
    members: dict[Any, list[int]] = defaultdict(list)
    for job, rank, comm, seq, op, joint in con.execute(
        "SELECT DISTINCT ON (job, rank) job, rank, comm, seq, op, joint FROM last_calls "
        "ORDER BY ALL"
    ).fetchall():
        graphs[job].last[rank] = (joint, answers.get((job, rank)), comm, seq, op)
        if joint:
            members[job, comm, seq].append(rank)
    for job, comm, seq, rank in con.execute(
        """SELECT DISTINCT c.job, c.comm, c.seq, c.rank FROM joint_calls c
           SEMI JOIN last_calls l ON l.joint AND l.job = c.job AND l.comm = c.comm
               AND l.seq = c.seq ORDER BY ALL"""
    ).fetchall():
        if rank in ahead[job]:
            graphs[job].held["call", comm, seq].append(rank)
    for (job, comm, seq), ranks in members.items():
        for rank in ranks if graphs[job].held.get(("call", comm, seq)) else ():
            graphs[job].held[rank].append(("call", comm, seq))
    return graphs
