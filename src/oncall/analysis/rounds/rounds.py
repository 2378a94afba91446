"""Rounds: one collective on one communicator, and how long its members were in it.

A member's time in a collective is its wait for the last to arrive plus the transfer (CCL-D
4.2.1), so the longest time belongs to the first to arrive and the shortest to the last. Where a
source records durations they are used, and clocks do not matter; elsewhere the wait is read from
arrivals, and the transfer is unknown.
"""

from __future__ import annotations

from oncall.evidence import relation


@relation(
    "rounds",
    reads=["operations"],
    optional=["arrivals"],
    columns=[
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
        ("basis", "VARCHAR", "", "duration; or arrival, where the transfer is not known"),
        (
            "stands_for",
            "INTEGER",
            "rounds",
            "number of rounds that this one represents: its lost time counts that often",
        ),
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
