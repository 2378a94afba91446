"""Algorithm bandwidth over time: each period against what is normal for it (TFD 3.3).

A period is TFD's T, five iterations; longer, where the recording would be cut into more than 40.
The normal of a rank and kind of operation is the median of its periods, or that of their first
quarter if that is higher: a fault that lasts must not become what is normal.

A rank's bandwidth falls if the transfer is slow and if it waits for a late rank. The transfer's
own bandwidth, by the member that took part for the shortest time, separates these.
"""

from __future__ import annotations

from oncall.evidence import Param, relation


@relation(
    "bandwidth_periods",
    reads=["algorithm_bandwidth", "iterations", "rounds"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("comm", "UBIGINT", "", "communicator"),
        ("op", "VARCHAR", "", "operation"),
        ("bytes", "BIGINT", "bytes", "bytes the caller passed"),
        ("rank", "INTEGER", "", "global rank"),
        ("period", "INTEGER", "", "which period, in order of time"),
        ("periods", "INTEGER", "", "how many there are"),
        ("at_ns", "BIGINT", "ns", "first operation of it"),
        ("operations", "BIGINT", "", "operations seen"),
        ("time_ns", "BIGINT", "ns", "time in such operations"),
        ("algorithm_bytes_per_s", "DOUBLE", "bytes/s", "median algorithm bandwidth"),
        ("normal_bytes_per_s", "DOUBLE", "bytes/s", "what is normal for it"),
        ("ratio", "DOUBLE", "ratio", "of these two"),
        ("transfer_bytes_per_s", "DOUBLE", "bytes/s", "median bandwidth without waiting"),
        ("transfer_ratio", "DOUBLE", "ratio", "of that and its normal"),
    ],
    source="TFD 3.3 (jitter), 4.1 (T)",
    params={
        "iterations": Param(5, "iterations of a period: TFD's T (4.1)"),
        "early": Param("25 %", "of its periods: a fault that lasts must not become what is normal"),
        "most_periods": Param(
            40, "periods that a recording is cut into at most: more are too short to judge"
        ),
    },
)
def bandwidth_periods() -> str:
    """Median bandwidth of each rank on each communicator in each period, against its normal."""
    return """
        WITH clock AS (
            SELECT job, first_ns, greatest($iterations * iteration_ns,
                (last_ns - first_ns) / $most_periods) AS period_ns FROM iterations),
        joined AS (
            SELECT a.job, a.comm, a.op, a.bytes, a.rank, a.at_ns, a.duration_ns, a.stands_for,
                a.algorithm_bytes_per_s, a.message_bytes * 1e9 / r.t_min_ns AS transfer_bytes_per_s,
                floor((a.at_ns - c.first_ns) / c.period_ns)::INTEGER AS period
            FROM algorithm_bandwidth a JOIN clock c USING (job)
            LEFT JOIN rounds r ON r.job = a.job AND r.comm = a.comm AND r.seq = a.seq
                AND r.basis = 'duration'
            WHERE a.kind = 'coll' AND a.at_ns IS NOT NULL),
        periods AS (
            SELECT job, comm, op, bytes, rank, period, min(at_ns) AS at_ns, count(*) AS operations,
                sum(duration_ns * coalesce(stands_for, 1)) AS time_ns,
                median(algorithm_bytes_per_s) AS algorithm_bytes_per_s,
                median(transfer_bytes_per_s) AS transfer_bytes_per_s
            FROM joined GROUP BY ALL),
        counted AS (
            SELECT *, count(*) OVER shape AS periods, percent_rank() OVER in_time < $early AS early
            FROM periods
            WINDOW shape AS (PARTITION BY job, comm, op, bytes, rank),
                in_time AS (PARTITION BY job, comm, op, bytes, rank ORDER BY period)),
        normals AS (
            SELECT job, comm, op, bytes, rank,
                greatest(median(algorithm_bytes_per_s), median(algorithm_bytes_per_s)
                    FILTER (early)) AS normal_bytes_per_s,
                greatest(median(transfer_bytes_per_s), median(transfer_bytes_per_s)
                    FILTER (early)) AS normal_transfer
            FROM counted GROUP BY ALL)
        SELECT *, algorithm_bytes_per_s / normal_bytes_per_s AS ratio,
            transfer_bytes_per_s / normal_transfer AS transfer_ratio
        FROM counted JOIN normals USING (job, comm, op, bytes, rank)
    """
