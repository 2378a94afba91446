"""Algorithm bandwidth: what an operation moved, over the time a rank took part in it (TFD 2.3).

It is TFD's first metric: it shows how well communication goes whatever the cause. Bus bandwidth
beside it counts what each link carries, so that operations and group sizes compare (nccl-tests).
"""

from __future__ import annotations

from oncall.evidence import Param, relation

# Bytes on each link per byte of the message, in a group of n.
_BUS = """
    CASE op WHEN 'AllReduce' THEN 2 * (size - 1.0) / size
        WHEN 'AllGather' THEN (size - 1.0) / size WHEN 'ReduceScatter' THEN (size - 1.0) / size
        WHEN 'AllToAll' THEN (size - 1.0) / size ELSE 1 END
"""


@relation(
    "algorithm_bandwidth",
    reads=["operations"],
    optional=["group_places"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("comm", "UBIGINT", "", "communicator"),
        ("kind", "VARCHAR", "", "coll or p2p"),
        ("seq", "BIGINT", "", "operation number"),
        ("rank", "INTEGER", "", "global rank"),
        ("op", "VARCHAR", "", "operation"),
        ("bytes", "BIGINT", "bytes", "bytes the caller passed"),
        ("at_ns", "BIGINT", "ns", "when the rank entered"),
        ("duration_ns", "BIGINT", "ns", "time it took part, waiting included"),
        ("message_bytes", "BIGINT", "bytes", "size of the message: of all parts of a gather"),
        ("algorithm_bytes_per_s", "DOUBLE", "bytes/s", "message over time"),
        ("bus_bytes_per_s", "DOUBLE", "bytes/s", "what each link carried over time"),
        ("stands_for", "INTEGER", "rounds", "number of rounds that this one represents"),
    ],
    source="TFD 2.3",
    view=True,
)
def algorithm_bandwidth() -> str:
    """Each completed operation of each rank with its bandwidth."""
    return f"""
        WITH sized AS (
            SELECT o.*, g.size, CASE WHEN op IN ('AllGather', 'ReduceScatter')
                THEN bytes * coalesce(g.size, 1) ELSE bytes END AS message_bytes
            FROM operations o LEFT JOIN group_places g USING (job, comm)
            WHERE done AND duration_ns > 0 AND bytes > 0)
        SELECT *, entered_ns AS at_ns, message_bytes * 1e9 / duration_ns AS algorithm_bytes_per_s,
            message_bytes * 1e9 / duration_ns * ({_BUS}) AS bus_bytes_per_s
        FROM sized
    """


@relation(
    "iterations",
    reads=["operations"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("first_ns", "BIGINT", "ns", "first entry into the operation that counts them"),
        ("last_ns", "BIGINT", "ns", "last one"),
        ("iterations", "BIGINT", "", "how often it was done"),
        ("iteration_ns", "DOUBLE", "ns", "mean time between"),
    ],
    source="TFD 2.2: traffic repeats with each iteration",
    params={"least_rounds": Param(5, "rounds of an operation: fewer show no period")},
)
def iterations() -> str:
    """How long an iteration of training takes: the time between calls of the collective that is
    rarest among those that are repeated all the time."""
    return """
        WITH shapes AS (
            SELECT job, comm, op, bytes, rank, sum(coalesce(stands_for, 1)) AS rounds,
                min(entered_ns) AS first_ns, max(entered_ns) AS last_ns
            FROM operations WHERE kind = 'coll' AND entered_ns IS NOT NULL GROUP BY ALL),
        spans AS (
            SELECT *, max(last_ns) OVER j - min(first_ns) OVER j AS span_ns FROM shapes
            WINDOW j AS (PARTITION BY job))
        SELECT job, first_ns, last_ns, rounds AS iterations,
            (last_ns - first_ns) / (rounds - 1) AS iteration_ns
        FROM spans WHERE rounds >= $least_rounds AND last_ns - first_ns > span_ns / 2
        QUALIFY row_number() OVER (PARTITION BY job ORDER BY rounds, comm, rank, op, bytes) = 1
    """
