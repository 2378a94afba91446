"""Where chains of waiting end in recordings of calls alone: ranks whose next call is awaited.

A rank waits for the members that have not made a joint call it has made, and in a Recv for the rank
that has not called the Send. Its last call may also be held up by a member blocked elsewhere, where
the host calls ahead of its device. If the job hangs, it hangs at a rank that waits for no other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import duckdb
import numpy as np
from numpy.typing import NDArray

from oncall.analysis.common.graph import components, reaching, sinks
from oncall.evidence import relation

Array = NDArray[Any]


@relation(
    "last_calls",
    reads=["call_fronts"],
    empty_without=["call_fronts"],
    columns=[
        "job rank comm",
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
    reads=["joint_calls", "operations", "members"],
    empty_without=["joint_calls"],
    columns=[
        "job",
        ("rank", "INTEGER", "", "who called a Send or Recv between stages"),
        "peer",
        ("receives", "BOOLEAN", "", "it is a Recv"),
        ("answered", "BOOLEAN", "", "the other side has called its half"),
        ("called_ns", "BIGINT", "ns", "when it was called, on the rank's own clock"),
        ("ahead", "BOOLEAN", "", "by the schedule, ranks may receive before they need it"),
        ("transfer", "UBIGINT", "", "equal for both sides"),
        ("last", "BOOLEAN", "", "it is among the rank's last calls"),
    ],
    source="VenusTrace 3.2.1 (pipeline communication), Algorithm 1",
)
def called_transfers() -> str:
    """The Sends and Recvs between two ranks. Those in a communicator of two are matched by their
    order, if both logs are complete; those between pipeline stages by micro-batch and direction."""
    return """
        WITH two AS (
            SELECT job, comm, min(rank) + max(rank) AS of_both FROM members
            SEMI JOIN (SELECT DISTINCT job FROM joint_calls) USING (job)
            GROUP BY job, comm HAVING count(DISTINCT rank) = 2 AND coalesce(max(size), 2) = 2),
        sides AS (
            SELECT job, comm, rank, min(seq) AS first_seq, max(seq) - min(seq) + 1 AS numbers,
                count(DISTINCT seq) AS recorded
            FROM operations SEMI JOIN two USING (job, comm) WHERE kind = 'p2p' GROUP BY ALL),
        whole AS (
            SELECT job, comm FROM sides GROUP BY ALL
            HAVING count(*) = 2 AND bool_and(recorded = numbers)
                AND min(first_seq) = max(first_seq)),
        ordered AS (
            SELECT job, comm, rank, of_both - rank AS peer, op = 'Recv' AS receives, called_ns,
                row_number() OVER (PARTITION BY job, comm, rank, op ORDER BY called_ns, seq)
                    AS number
            FROM operations JOIN two USING (job, comm) SEMI JOIN whole USING (job, comm)
            WHERE kind = 'p2p' AND called_ns IS NOT NULL),
        shape AS (
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
            FROM stage_work WHERE stage IS NOT NULL),
        newest AS (SELECT DISTINCT job, rank, called_ns, true AS last FROM last_calls)
        SELECT * REPLACE (coalesce(last, false) AS last) FROM (
        SELECT o.job, o.rank, o.peer, o.receives, h.rank IS NOT NULL AS answered, o.called_ns,
            coalesce(s.interleaved, false) AS ahead,
            hash(o.comm, o.number, CASE WHEN o.receives THEN o.peer ELSE o.rank END) AS transfer
        FROM ordered o LEFT JOIN shape s USING (job)
        LEFT JOIN ordered h ON h.job = o.job AND h.comm = o.comm AND h.rank = o.peer
            AND h.receives <> o.receives AND h.number = o.number
        UNION ALL
        SELECT o.job, o.rank, s.rank AS peer, o.receives, h.rank IS NOT NULL, o.called_ns,
            o.interleaved, hash(o.replica, o.tensor_rank, o.iteration, o.micro_batch, o.forward,
                least(o.here, o.there))
        FROM halves o ANTI JOIN (SELECT DISTINCT job, rank FROM ordered) known
            ON known.job = o.job AND known.rank = o.rank
        JOIN seats s ON s.job = o.job AND s.replica = o.replica
            AND s.tensor_rank IS NOT DISTINCT FROM o.tensor_rank AND s.stage = (o.there + pp) % pp
        LEFT JOIN halves h ON h.job = o.job AND h.rank = s.rank AND h.iteration = o.iteration
            AND h.micro_batch IS NOT DISTINCT FROM o.micro_batch AND h.receives <> o.receives
            AND h.forward = o.forward AND h.here = o.there)
        LEFT JOIN newest USING (job, rank, called_ns)
    """


_COLUMNS = [
    "job",
    ("rank", "INTEGER", "", "a rank that waits for no other, and that others wait for"),
    ("joint", "BOOLEAN", "", "its last call is one that all members made; else a Send or Recv"),
    ("answered", "BOOLEAN", "", "both ends of that transfer are called; NULL: not known"),
    ("comm", "UBIGINT", "", "communicator of its last call"),
    ("seq", "BIGINT", "", "its number there"),
    "op",
    ("waiting", "BIGINT", "ranks", "ranks of the job that wait because of it, as far as observed"),
    ("place", "BIGINT", "", "equal for those that made their last call, or exchange, together"),
    ("others", "BIGINT", "ranks", "ranks with logs that wait for none of these"),
]


@relation(
    "awaited_callers",
    reads=["call_fronts", "last_calls", "joint_calls"],
    optional=["called_transfers"],
    empty_without=["last_calls"],
    columns=_COLUMNS,
    source="VenusTrace Algorithm 1, over all communicators",
)
def awaited_callers(con: duckdb.DuckDBPyConnection) -> Mapping[str, Any]:
    """Ranks whose next call others wait for and that wait for no other themselves."""
    rows: list[tuple[Any, ...]] = []
    for (job,) in con.execute("SELECT DISTINCT job FROM last_calls ORDER BY job").fetchall():
        rows += [(job, *row) for row in _awaited(con, job)]
    return awaited_callers.by_column(rows)


def _awaited(con: duckdb.DuckDBPyConnection, job: str) -> Iterator[tuple[Any, ...]]:
    """Rows of `awaited_callers` without the job."""
    waits, together = _replayed(con, job)
    last = {rank: call for rank, *call in con.execute(_LAST, {"job": job}).fetchall()}
    unobserved = {
        comm
        for (comm,) in con.execute(
            "SELECT DISTINCT comm FROM call_fronts WHERE job = ? AND silent_members > 0", [job]
        ).fetchall()
    }
    place = {one: i for i, nodes in enumerate(components(together)) for one in nodes}
    awaited = {node for nodes in waits.values() for node in nodes}
    free = sorted(
        rank
        for component in sinks(waits)
        for rank in component
        if rank in last and not waits[rank] and rank in awaited and last[rank][2] not in unobserved
    )
    held_up = reaching(waits, free)
    others = sum(rank not in held_up for rank in last)
    for rank in free:
        waiting = sum(n in last for n in reaching(waits, [rank])) - 1
        yield rank, *last[rank], waiting, place[rank], others


# Of a group call any Send or Recv; it is answered if all of them are.
_LAST = """
    SELECT DISTINCT ON (rank) rank, joint, answered, comm, seq, op FROM last_calls
    LEFT JOIN (
        SELECT rank, bool_and(answered) AS answered FROM called_transfers WHERE job = $job AND last
        GROUP BY rank) USING (rank)
    WHERE job = $job ORDER BY rank, joint, answered, comm, seq, op
"""

# Ranks with a log: some may have made no call that others are known to share.
_RANKS = "SELECT DISTINCT rank FROM last_calls WHERE job = ? ORDER BY rank"

# The calls of each rank in their order. A transfer is equal for both of its sides.
_CALLS = """
    WITH reached AS (
        SELECT comm, min(coalesce(seq, -1)) AS seq FROM call_fronts WHERE job = $job
        GROUP BY comm),
    calls AS (
        SELECT rank, called_ns, hash(comm, j.seq) AS call, false AS transfer, 0 AS way,
            j.seq > r.seq AS unmet, comm, j.seq
        FROM joint_calls j JOIN reached r USING (comm) WHERE job = $job
        UNION ALL
        SELECT rank, called_ns, transfer, true, 2 * peer + receives::INTEGER,
            NOT answered AND NOT ahead, NULL, NULL
        FROM called_transfers WHERE job = $job)
    SELECT rank, call, transfer, way, unmet, comm, seq
    FROM calls ORDER BY rank, called_ns, transfer, call
"""


def exchange_slots(rank: Array, transfer: Array, way: Array) -> Array:
    """Numbers (n,) of the steps of each rank: a joint call, or Sends and Recvs made together.

    Rows are in the order of the calls of each `rank`; `transfer` marks Sends and Recvs, and `way`
    is equal for transfers to, or from, one peer. A run of transfers in which each way occurs once
    is one exchange: its halves do not wait for one another.
    """
    starts = np.ones(len(rank), bool)
    starts[1:] = (rank[1:] != rank[:-1]) | ~transfer[1:] | ~transfer[:-1]
    seen: set[int] = set()
    for i in np.flatnonzero(transfer).tolist():
        if starts[i] or way[i] in seen:
            starts[i] = True
            seen.clear()
        seen.add(int(way[i]))
    return np.cumsum(starts) - 1


def blocked_steps(rank: Array, step: Array, call: Array, unmet: Array) -> tuple[Array, Array]:
    """The first step of each rank whose calls cannot all complete (ranks,), and those calls.

    `rank` (n,) counts from 0, `step` rises over its calls, `call` (n,) is equal for the members of
    one call, `unmet` (n,) marks those that lack a member. A rank that is not blocked has the number
    behind the last step. The second array (n,) marks the calls that cannot complete.
    """
    none = int(step[-1]) + 1 if len(step) else 0
    blocked = np.full(int(rank[-1]) + 1 if len(rank) else 0, none)
    stuck = np.zeros(int(call.max()) + 1 if len(call) else 0, bool)
    stuck[call[unmet]] = True
    while True:
        held = stuck[call]
        earlier = blocked.copy()
        np.minimum.at(earlier, rank[held], step[held])
        behind = step > earlier[rank]
        if np.array_equal(earlier, blocked) and stuck[call[behind]].all():
            return blocked, held
        blocked = earlier
        stuck[call[behind]] = True


def _replayed(
    con: duckdb.DuckDBPyConnection, job: str
) -> tuple[dict[Any, list[Any]], dict[Any, list[Any]]]:
    """Which ranks each rank waits for: the calls that its device is in and the ranks that hold
    those up; and the last calls of each rank, with the ranks that made them last."""
    found = con.execute(_CALLS, {"job": job}).fetchnumpy()
    rank, unmet = found["rank"], found["unmet"]
    place = np.cumsum(np.diff(rank, prepend=rank[:1]) != 0)
    call = np.unique(found["call"], return_inverse=True)[1]
    step = exchange_slots(place, found["transfer"], found["way"])
    blocked, stuck = blocked_steps(place, step, call, unmet)
    behind: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for comm, member, seq in con.execute(
        "SELECT comm, rank, coalesce(seq, -1) FROM call_fronts WHERE job = ? AND behind "
        "ORDER BY ALL",
        [job],
    ).fetchall():
        behind[comm].append((member, seq))
    waits: dict[Any, list[Any]] = {one: [] for (one,) in con.execute(_RANKS, [job]).fetchall()}
    for i in np.flatnonzero(stuck & (step == blocked[place])).tolist():
        node = "call", int(call[i])
        waits[int(rank[i])].append(node)
        if node in waits:
            continue
        waits[node] = []
        if unmet[i] and found["transfer"][i]:
            waits[node].append(int(found["way"][i]) // 2)
        elif unmet[i]:
            missing = behind[int(found["comm"][i])]
            waits[node] += [member for member, seq in missing if seq < found["seq"][i]]
    late = stuck & (step > blocked[place])
    for of_call, member in zip(call[late].tolist(), rank[late].tolist(), strict=True):
        if ("call", of_call) in waits:
            waits["call", of_call].append(member)
    newest = np.zeros(len(blocked), step.dtype)
    np.maximum.at(newest, place, step)
    together: dict[Any, list[Any]] = {one: [] for one in waits if isinstance(one, int)}
    final = step == newest[place]
    for of_call, member in zip(call[final].tolist(), rank[final].tolist(), strict=True):
        together[member].append(("call", of_call))
        together.setdefault(("call", of_call), []).append(member)
    return waits, together
