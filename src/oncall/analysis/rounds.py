"""Rounds: one collective on one communicator, and how long its members were in it.

A member's time in a collective is its wait for the last to arrive plus the transfer (CCL-D
4.2.1), so the longest time belongs to the first to arrive and the shortest to the last. Where a
source records durations they are used, and clocks do not matter. Where it records only calls
(Megatrace, Flight Recorder without timing), the wait is read from the arrivals, after taking off
each rank's usual offset: clock skew and a constant head start look alike and are neither a fault.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt

from oncall.evidence import relation

# A rank's usual offset is read from this many first rounds, CCL-D's m (4.2.1), but never from
# more than a quarter of them: a short recording must keep rounds to compare with.
OFFSET_ROUNDS = 100
OFFSET_SHARE = 4

Ints = npt.NDArray[np.int64]

_ROUND_COLUMNS = [
    ("job", "VARCHAR", "", "the job"),
    ("comm", "UBIGINT", "", "communicator"),
    ("seq", "BIGINT", "", "the round: operation number"),
    ("op", "VARCHAR", "", "operation"),
    ("bytes", "BIGINT", "bytes", "its size; elements where bytes are unknown"),
    ("at_ns", "BIGINT", "ns", "first entry"),
    ("ranks", "INTEGER", "ranks", "members whose time is known"),
    ("t_max_ns", "BIGINT", "ns", "longest time in it (CCL-D T_max of the round)"),
    ("t_min_ns", "BIGINT", "ns", "shortest time in it"),
    ("last_rank", "INTEGER", "", "the member with the shortest time: the last to arrive"),
    ("margin_ns", "BIGINT", "ns", "how much later it came than the last but one"),
    ("basis", "VARCHAR", "", "duration, or arrival: only calls are known, transfer time is not"),
]


@relation(
    "rounds",
    reads=["operations"],
    columns=_ROUND_COLUMNS,
    source="CCL-D 4.2.1, eq. 1-3",
)
def rounds(con: duckdb.DuckDBPyConnection) -> Mapping[str, Any]:
    """Every completed collective round with its longest and shortest time."""
    measured = con.execute(
        """SELECT job, comm, seq, any_value(op) AS op, any_value(coalesce(bytes, count)) AS bytes,
               min(entered_ns) AS at_ns, count(*)::INTEGER AS ranks, max(duration_ns) AS t_max_ns,
               min(duration_ns) AS t_min_ns, arg_min(rank, duration_ns) AS last_rank,
               coalesce(min(duration_ns, 2)[2] - min(duration_ns), 0) AS margin_ns
           FROM operations WHERE kind = 'coll' AND done AND duration_ns IS NOT NULL
           GROUP BY job, comm, seq HAVING count(*) > 1"""
    ).fetchnumpy()
    columns: dict[str, Any] = dict(measured) | {"basis": ["duration"] * len(measured["seq"])}
    arrivals = _arrival_rounds(con)
    if arrivals is None:
        return columns
    return {
        name: np.ma.concatenate([np.ma.asarray(columns[name]), np.ma.asarray(arrivals[name])])
        for name in columns
    }


def _arrival_rounds(con: duckdb.DuckDBPyConnection) -> dict[str, Any] | None:
    """Rounds of jobs that record calls but no durations, or None if there are none."""
    calls = con.execute(
        """SELECT job, comm, seq, rank, op, coalesce(bytes, count) AS bytes, entered_ns,
               dense_rank() OVER (ORDER BY job, comm, seq) - 1 AS round_id,
               dense_rank() OVER (ORDER BY job, comm, rank) - 1 AS member_id
           FROM operations
           SEMI JOIN (SELECT job FROM ops GROUP BY job HAVING count(duration_ns) = 0
                      AND count(CASE WHEN started_ns IS NOT NULL THEN ended_ns END) = 0)
               USING (job)
           WHERE kind = 'coll' AND entered_ns IS NOT NULL AND coalesce(done, true)
           QUALIFY count(*) OVER (PARTITION BY job, comm, seq) > 1
           ORDER BY job, comm, seq, entered_ns"""
    ).fetchnumpy()
    if not len(calls["seq"]):
        return None
    round_id = np.asarray(calls["round_id"], dtype=np.int64)
    _, first, round_of = np.unique(round_id, return_index=True, return_inverse=True)
    arrival = _without_offsets(
        np.asarray(calls["entered_ns"], dtype=np.int64),
        round_of,
        first,
        np.unique(np.asarray(calls["member_id"]), return_inverse=True)[1],
    )
    order = np.lexsort((arrival, round_of))
    arrival = arrival[order]
    last = np.append(first[1:], len(arrival)) - 1
    latest = order[last]
    return {
        **{name: calls[name][first] for name in ("job", "comm", "seq", "op", "bytes")},
        "at_ns": calls["entered_ns"][first],
        "ranks": (last - first + 1).astype(np.int32),
        "t_max_ns": arrival[last] - arrival[first],
        "t_min_ns": np.zeros(len(first), dtype=np.int64),
        "last_rank": calls["rank"][latest],
        "margin_ns": arrival[last] - arrival[last - 1],
        "basis": ["arrival"] * len(first),
    }


def _without_offsets(entered_ns: Ints, round_of: Ints, first: Ints, member: Ints) -> Ints:
    """Arrivals within their round, less each member's usual place in its first rounds.

    `round_of` (n,) numbers each row's round, `first` (rounds,) is each round's first row,
    `member` (n,) numbers the memberships. The usual place is a median.
    """
    sizes = np.diff(np.append(first, len(entered_ns)))
    # Relative to the round's first row first: a float cannot hold Unix nanoseconds.
    relative = entered_ns - entered_ns[first][round_of]
    means = np.add.reduceat(relative, first) // sizes
    relative = relative - means[round_of]
    order = np.lexsort((round_of, member))
    starts = np.flatnonzero(np.append(True, np.diff(member[order]) != 0))
    usual = np.zeros(int(member.max()) + 1, dtype=np.int64)
    for low, high in zip(starts, np.append(starts[1:], len(order)), strict=True):
        few = min(OFFSET_ROUNDS, max(1, (high - low) // OFFSET_SHARE))
        rows = order[low : low + few]
        usual[member[rows[0]]] = np.median(relative[rows])
    return relative - usual[member]
