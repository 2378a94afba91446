"""Communicators whose transfers slowed, and whether their data crosses the network.

In TFD's worked case tensor parallelism is normal and data and pipeline parallelism are slow: that
leaves what lies between a GPU and the network. Only transfers count here, not waiting.
"""

from __future__ import annotations

from oncall.evidence import Param, relation


@relation(
    "slowed_groups",
    reads=["bandwidth_periods", "group_places"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("comm", "UBIGINT", "", "communicator"),
        ("role", "VARCHAR", "", "what it is for"),
        ("across", "BOOLEAN", "", "its data crosses the network"),
        ("op", "VARCHAR", "", "operation"),
        ("bytes", "BIGINT", "bytes", "bytes the caller passed"),
        ("periods", "INTEGER", "", "periods seen"),
        ("slow_periods", "INTEGER", "", "of these with transfers below 80 % of normal"),
        ("at_ns", "BIGINT", "ns", "the first slow one"),
        ("ratio", "DOUBLE", "ratio", "median of their bandwidth against normal"),
        ("slowed", "BOOLEAN", "", "in two of its periods at least, and in one of ten"),
        ("lost_ns", "BIGINT", "ns", "time that the slow transfers took beyond normal"),
        ("bytes_per_s", "DOUBLE", "bytes/s", "median bandwidth of its transfers"),
    ],
    source="TFD 3.3, 4.2",
    params={
        "slowed": Param("80 %", "of its normal bandwidth (TFD 2.3: jitter below about 80 %)"),
        "lasting": Param("10 %", "of its periods, and two at least: less is a burst"),
    },
)
def slowed_groups() -> str:
    """Each communicator and kind of operation, and whether its transfers slowed."""
    return """
        WITH periods AS (
            SELECT job, comm, op, bytes, period, max(periods) AS periods, min(at_ns) AS at_ns,
                median(transfer_ratio) AS ratio, max(transfer_bytes_per_s) AS bytes_per_s,
                median(time_ns) AS time_ns
            FROM bandwidth_periods WHERE transfer_ratio IS NOT NULL GROUP BY ALL),
        groups AS (
            SELECT job, comm, op, bytes, max(periods) AS periods,
                count(*) FILTER (ratio < $slowed) AS slow_periods,
                min(at_ns) FILTER (ratio < $slowed) AS at_ns,
                median(ratio) FILTER (ratio < $slowed) AS ratio,
                coalesce(sum(time_ns * (1 - ratio)) FILTER (ratio < $slowed), 0) AS lost_ns,
                median(bytes_per_s) AS bytes_per_s
            FROM periods GROUP BY ALL)
        SELECT g.*, p.role, p.across,
            slow_periods >= greatest(2, $lasting * periods) AS slowed
        FROM groups g JOIN group_places p USING (job, comm)
    """
