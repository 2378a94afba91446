"""Rounds: one collective on one communicator, and how long its members were in it.

A member's time in a collective is its wait for the last to arrive plus the transfer (CCL-D
4.2.1), so the longest time belongs to the first to arrive and the shortest to the last. Where a
source records durations they are used, and clocks do not matter; elsewhere the wait is read from
arrivals, and the transfer is unknown.

What a member waits is the time from its own arrival to the last one's. Clocks differ between hosts,
so each rank's baseline offset within the communicator is taken off first: skew and a constant head
start look alike and are neither a fault. A host that calls something else before the last one
arrives has not waited for it longer than until then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import duckdb
import numpy as np

from oncall.analysis.common.ordering import Ints, order_of, sorted_by
from oncall.evidence import Param, relation


@relation(
    "arrivals",
    reads=["operations", "knowledge"],
    optional=["heads"],
    columns=[
        ("ops_row", "BIGINT", "", "the call: its row in ops"),
        ("wait_ns", "BIGINT", "ns", "from its arrival to the last one's, offsets taken off"),
    ],
    source="CCL-D 4.2.1, without durations",
    params={
        "offset_rounds": Param(100, "first ones for a rank's offset: CCL-D's m (4.2.1)"),
        "offset_part": Param(4, "a past is the first of so many parts: some are left to compare"),
    },
)
def arrivals(
    con: duckdb.DuckDBPyConnection, *, offset_rounds: int, offset_part: int
) -> Mapping[str, Any]:
    """Each member's wait in each collective round of jobs that record no durations."""
    nothing: Mapping[str, Any] = {"ops_row": [], "wait_ns": []}
    if not con.execute("SELECT 1 FROM knowledge WHERE NOT durations").fetchall():
        return nothing
    calls = con.execute(
        """SELECT o.ops_row, o.seq, o.entered_ns, m.number, m.comm_number,
               coalesce(o.called_ns, o.entered_ns) AS called_ns, m.caller
           FROM operations o
           JOIN (SELECT job, comm, rank, row_number() OVER () AS number,
                     dense_rank() OVER (ORDER BY job, comm) AS comm_number,
                     dense_rank() OVER (ORDER BY job, rank) AS caller FROM heads) m
               USING (job, comm, rank)
           SEMI JOIN (SELECT job FROM knowledge WHERE NOT durations) USING (job)
           WHERE o.kind = 'coll' AND o.seq IS NOT NULL AND o.entered_ns IS NOT NULL
               AND coalesce(o.done, true)"""
    ).fetchnumpy()
    row, seq, entered_ns, member, comm, called_ns, caller = (
        np.asarray(values, dtype=np.int64) for values in calls.values()
    )
    order = sorted_by(comm, seq)
    new = np.append(True, (np.diff(comm[order]) != 0) | (np.diff(seq[order]) != 0))
    sizes = np.diff(np.append(np.flatnonzero(new[: len(order)]), len(order)))
    order = order[np.repeat(sizes > 1, sizes)]
    if not len(order):
        return nothing
    sizes = sizes[sizes > 1]
    first = np.cumsum(sizes) - sizes
    round_of = np.repeat(np.arange(len(first)), sizes)
    arrival = without_offsets(
        entered_ns[order], round_of, first, member[order], offset_rounds, offset_part
    )
    wait_ns = np.maximum.reduceat(arrival, first)[round_of] - arrival
    wait_ns = np.minimum(wait_ns, _until_next(called_ns, caller)[order])
    return {"ops_row": row[order], "wait_ns": wait_ns}


def _until_next(called_ns: Ints, caller: Ints) -> Ints:
    """How long after each call (n,) its rank makes its next collective; no limit for the last."""
    order = sorted_by(caller, called_ns)
    again = np.diff(caller[order]) == 0
    found = np.full(len(order), np.iinfo(np.int64).max)
    found[order[:-1][again]] = np.maximum(1, np.diff(called_ns[order])[again])
    return found


def without_offsets(
    entered_ns: Ints,
    round_of: Ints,
    first: Ints,
    member: Ints,
    offset_rounds: int,
    offset_part: int,
) -> Ints:
    """Arrivals within their round, less each member's baseline place in its first rounds.

    Rows are sorted by round; `round_of` (n,) numbers each row's round, `first` (rounds,) is each
    round's first row, `member` (n,) numbers the memberships. The baseline place is a median.
    """
    sizes = np.diff(np.append(first, len(entered_ns)))
    # Relative to the round's first row: a float cannot hold Unix nanoseconds.
    relative = entered_ns - entered_ns[first][round_of]
    relative = relative - (np.add.reduceat(relative, first) // sizes)[round_of]
    order = order_of(member)
    starts = np.flatnonzero(np.append(True, np.diff(member[order]) != 0))
    rounds = np.diff(np.append(starts, len(order)))
    few = np.minimum(offset_rounds, np.maximum(1, rounds // offset_part))
    baseline = np.zeros(int(member.max()) + 1, dtype=np.int64)
    for number in np.unique(few):
        chosen = np.flatnonzero(few == number)
        rows = order[starts[chosen][:, np.newaxis] + np.arange(number)]
        # From the first on: a clock that starts at boot is further off than a float can represent.
        origin = relative[rows[:, 0]]
        middle = np.median(relative[rows] - origin[:, np.newaxis], axis=1)
        baseline[member[rows[:, 0]]] = origin + middle.astype(np.int64)
    return np.asarray(relative - baseline[member], dtype=np.int64)


@relation(
    "rounds",
    reads=["operations"],
    columns=[
        "job comm seq op",
        ("bytes", "BIGINT", "bytes", "its size; elements where bytes are unknown"),
        ("at_ns", "BIGINT", "ns", "first entry"),
        ("ranks", "INTEGER", "ranks", "members whose time is known"),
        ("t_max_ns", "BIGINT", "ns", "longest time in it (CCL-D T_max of the round)"),
        ("t_min_ns", "BIGINT", "ns", "shortest time in it"),
        ("last_rank", "INTEGER", "", "the member with the shortest time: the last to arrive"),
        ("basis", "VARCHAR", "", "duration; or arrival, where the transfer is not known"),
        ("stands_for", "INTEGER", "rounds", "rounds that this one represents, each as costly"),
    ],
    source="CCL-D 4.2.1, eq. 1-3",
)
def rounds() -> str:
    """Every completed collective round with its longest and shortest time."""
    return """
        WITH calls AS (
            SELECT *, duration_ns AS took_ns, 'duration' AS basis FROM operations
            WHERE kind = 'coll' AND done AND duration_ns IS NOT NULL
            UNION ALL
            SELECT o.*, a.wait_ns, 'arrival' FROM operations o JOIN arrivals a USING (ops_row))
        SELECT job, comm, seq, min(op) AS op, min(coalesce(bytes, count)) AS bytes,
            min(entered_ns) AS at_ns, count(*) AS ranks, max(took_ns) AS t_max_ns,
            min(took_ns) AS t_min_ns, arg_min(rank, (took_ns, rank)) AS last_rank,
            basis, min(coalesce(stands_for, 1)) AS stands_for
        FROM calls GROUP BY job, comm, seq, basis HAVING count(*) > 1
    """


@relation(
    "device_lags",
    reads=["operations"],
    columns=[
        "job",
        ("lag_ns", "DOUBLE", "ns", "median time from a collective's last call to its first end"),
        ("hidden", "BOOLEAN", "", "no durations are recorded, and calls do not show the devices"),
    ],
    source="beyond the papers",
    params={
        "timed": "lost_time.hardly",
        "poll": "contradictions.clock_slack",
    },
)
def device_lags() -> str:
    """Each job's lag of devices behind hosts."""
    return """
        WITH rounds AS (
            SELECT job, comm, seq, op, min(ended_ns) - max(called_ns) AS lag_ns,
                count(duration_ns) AS timed, count(*) AS calls
            FROM operations
            WHERE kind = 'coll' AND NOT on_device AND called_ns IS NOT NULL GROUP BY ALL)
        SELECT job, median(lag_ns) AS lag_ns,
            sum(timed) < $timed * sum(calls) AND coalesce(median(lag_ns) > $poll, false) AS hidden
        FROM rounds GROUP BY job
    """
