"""How long an iteration of training takes, by the collective that counts them."""

from __future__ import annotations

from oncall.evidence import Param, relation


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
