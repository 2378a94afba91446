"""The speed of the whole job: completions per second, and the duration of iterations."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import numpy as np

from oncall.core.units import NS_PER_S
from oncall.evidence.incident import Incident
from oncall.views.rates.buckets import (
    NEARLY_NOTHING,
    Bools,
    Buckets,
    Floats,
    RecordedBuckets,
    Series,
    baseline_of,
    has_stopped,
)
from oncall.views.snapshot import Ranks

THROUGHPUT, ITERATION = "completed operations", "iteration time"
CALLS = "calls"  # in place of THROUGHPUT where no completion is recorded
_LEAST_BUCKETS = 24  # a curve at all
_Values = tuple[str, str, Floats]  # name, unit, a value a bucket
_LEAST_ROUNDS = 5  # of an operation: fewer show no period, as relation `iterations` has it


def job_series(
    incident: Incident, ranks: Ranks, buckets: Buckets, began_ns: int | None = None
) -> tuple[Series, ...]:
    """Completed operations a second of all ranks, or calls where these alone were recorded, and
    how long the iteration took that went on in each bucket, by the step lines of logs or else by
    the operation that repeats with each; only what was recorded. `began_ns`: when the fault did,
    if there is one. A job that has stopped is outside what it did before, also where nothing before
    that fault is known."""
    incident.provide_what_can_be(("operations", "members", "step_times"))
    con = incident.con
    iterations = con.execute(_BY_LOGS).fetchall() or con.execute(_BY_OPERATIONS).fetchall()
    if iterations:  # a bucket holds about one at least: what is done within it comes in bursts
        median_ns = float(np.median([took_ns for _, took_ns in iterations]))
        span_ns = buckets.last_ns - buckets.first_ns
        most = int(np.clip(span_ns / max(median_ns, 1), _LEAST_BUCKETS, buckets.count))
        buckets = Buckets.over(buckets.first_ns, buckets.last_ns, most)
    recorded = RecordedBuckets(con, ranks, buckets)
    anybody, end = recorded.anybody, recorded.whole_until() + 1
    done, took = _throughput(con, anybody, buckets), _iterations(iterations, anybody, buckets)
    stopped = has_stopped(done[2][:end])
    before = (done[2][done[2] > 0], np.array([one for _, one in iterations]) / NS_PER_S)
    series = []
    for (name, unit, value), known in zip((done, took), before, strict=True):
        band = _baseline(value, buckets, began_ns)
        if band is None and stopped and len(known):
            band = float(np.median(known)) * NEARLY_NOTHING, float(known.max())
        if np.isfinite(value[:end]).any():
            series.append(Series(name, unit, buckets.at_ns[:end], value[:end], band, group=name))
    return tuple(series)


def _throughput(con: duckdb.DuckDBPyConnection, anybody: Bools, buckets: Buckets) -> _Values:
    """Zero where a node recorded and nothing completed; NaN where no node did."""
    ended = buckets.sql("coalesce(ended_ns, entered_ns + duration_ns, entered_ns)")
    rows = con.execute(
        f"SELECT {ended} AS b, sum(coalesce(stands_for, 1)), "
        "bool_or(done OR ended_ns IS NOT NULL OR duration_ns IS NOT NULL) FROM operations "
        "WHERE done IS DISTINCT FROM false GROUP BY b HAVING b IS NOT NULL"
    ).fetchall()
    value = np.where(anybody & bool(rows), 0.0, np.nan)
    for place, count, _ in rows:
        value[place] = count / (buckets.length_ns / NS_PER_S)
    if any(completed for *_, completed in rows):
        return THROUGHPUT, "ops/s", value
    return CALLS, "calls/s", value


def _iterations(rows: Sequence[tuple[int, int]], anybody: Bools, buckets: Buckets) -> _Values:
    """Of rows (when it ended, what it took, ns): what each took, and what the last one has taken
    so far once that is longer than any before."""
    value = np.full(buckets.count, np.nan)
    at_ns = buckets.at_ns
    for ended_ns, took_ns in rows:
        value[(at_ns > ended_ns - took_ns - buckets.length_ns) & (at_ns <= ended_ns)] = (
            took_ns / NS_PER_S
        )
    if rows:
        so_far_ns = at_ns - max(ended_ns for ended_ns, _ in rows)
        overdue = anybody & (so_far_ns > max(took_ns for _, took_ns in rows))
        value[overdue] = so_far_ns[overdue] / NS_PER_S
    return ITERATION, "s", value


def _baseline(value: Floats, buckets: Buckets, began_ns: int | None) -> tuple[float, float] | None:
    band = baseline_of(value, buckets, began_ns=began_ns)
    if band is None:
        return None
    low, high = band
    # However much it varies: nearly nothing is never as before.
    return max(low, (low + high) / 2 * NEARLY_NOTHING), high


# (when it ended, what it took, ns); without the inverses of rates, which are shorter.
_BY_LOGS = """
    SELECT at_ns, max(cost) FROM step_times WHERE cost > 1e6 AND at_ns IS NOT NULL
    GROUP BY at_ns ORDER BY at_ns
"""

# What waits in a stream was enqueued long before it will begin.
_CALLED = "entered_ns IS NOT NULL AND done IS DISTINCT FROM false"
# From call to call of the collective that is rarest among those that one rank repeats all the time.
_BY_OPERATIONS = f"""
    WITH shapes AS (
        SELECT comm, op, bytes, rank, count(*) AS rounds, bool_or(stands_for > 1) AS thinned,
            min(entered_ns) AS first_ns, max(entered_ns) AS last_ns
        FROM operations WHERE kind = 'coll' AND {_CALLED} GROUP BY ALL),
    counting AS (
        SELECT comm, op, bytes, rank FROM shapes
        WHERE rounds >= {_LEAST_ROUNDS} AND NOT coalesce(thinned, false)
            AND last_ns - first_ns > (SELECT max(last_ns) - min(first_ns) FROM shapes) / 2
        ORDER BY rounds, comm, rank, op, bytes LIMIT 1),
    calls AS (
        SELECT entered_ns, entered_ns - lag(entered_ns) OVER (ORDER BY entered_ns) AS took_ns
        FROM operations SEMI JOIN counting USING (comm, op, bytes, rank) WHERE {_CALLED})
    SELECT entered_ns, took_ns FROM calls WHERE took_ns IS NOT NULL ORDER BY entered_ns
"""
