"""Whom the others wait for, as profiles show it: the rank that exposes least communication.

Ranks of a job take equally long for an iteration. What one of them does not spend waiting for
others it works, and the others wait for the one that works longest, in whatever group. That needs
no groups, no order of operations, and no clocks more exact than a stretch is long.

One long wait fills many stretches. It is an event, such as a checkpoint, and shows nothing that
comes again: the longest waits can be left out.
"""

from __future__ import annotations

import duckdb
import numpy as np

from oncall.analysis.lost_time.iterations import Iterations
from oncall.analysis.lost_time.lateness import Lateness
from oncall.analysis.lost_time.limits import Limits
from oncall.analysis.lost_time.programs import Ints

# By the middle of an interval: all ranks have the same ones.
_STRETCHES = """
    WITH spans AS (
        SELECT rank, min(started_ns) AS low, max(ended_ns) AS high FROM profiled_time
        WHERE job = $job GROUP BY rank),
    common AS (SELECT max(low) AS low, min(high) AS high FROM spans),
    placed AS (
        SELECT t.rank, t.exposed_ns, t.ended_ns - t.started_ns AS length_ns,
            (t.started_ns - c.low) // (t.ended_ns - t.started_ns) AS tick,
            floor($stretches * (t.started_ns - c.low) / (c.high - c.low)) AS stretch
        FROM profiled_time t, common c
        WHERE t.job = $job AND t.started_ns >= c.low AND t.ended_ns <= c.high),
    waits AS (
        SELECT tick, tick - row_number() OVER (ORDER BY tick) AS wait
        FROM placed GROUP BY tick HAVING 2 * median(exposed_ns / length_ns) > 1),
    longest AS (
        FROM waits SEMI JOIN (
            SELECT wait FROM waits GROUP BY wait ORDER BY count(*) DESC, wait LIMIT $but)
        USING (wait))
    SELECT rank, stretch::INTEGER AS stretch, sum(exposed_ns) AS exposed_ns,
        sum(length_ns) AS length_ns,
        (SELECT low FROM common) AS low, (SELECT high FROM common) AS high
    FROM placed ANTI JOIN longest USING (tick) GROUP BY ALL
"""


def exposure_of(
    con: duckdb.DuckDBPyConnection, job: str, ranks: Ints, limits: Limits, *, but: int = 0
) -> Lateness | None:
    """By how much less each rank waited than the others, in equal stretches of a profile, without
    the longest waits (`but` so many); None if not all `ranks` were profiled at the same time."""
    asked = {"job": job, "stretches": limits.enough, "but": but}
    rows = con.execute(_STRETCHES, asked).fetchnumpy()
    if not len(rows["rank"]) or len(np.unique(rows["rank"])) < limits.nearly_all * len(ranks):
        return None
    waited = np.full((limits.enough, len(ranks)), np.nan)
    place = np.searchsorted(ranks, rows["rank"])
    known = (place < len(ranks)) & (ranks[np.minimum(place, len(ranks) - 1)] == rows["rank"])
    share = np.asarray(rows["exposed_ns"] / rows["length_ns"], dtype=np.float64)
    waited[rows["stretch"][known], place[known]] = share[known]
    low, high = int(rows["low"][0]), int(rows["high"][0])
    length_ns = (high - low) / limits.enough
    left = np.flatnonzero(~np.isnan(waited).all(1))
    waited = waited[left]
    return Lateness(
        late_ns=(np.nanmedian(waited, 1)[:, None] - waited) * length_ns,
        ranks=ranks,
        iterations=_stretches(low, length_ns, _stages(con, job, ranks), left),
        timed=True,
    )


def _stretches(low: int, length_ns: float, stage: Ints, left: Ints) -> Iterations:
    return Iterations(
        number=np.zeros(0, dtype=np.int64),
        begin_ns=low + (left * length_ns).astype(np.int64),
        length_ns=np.full(len(left), length_ns),
        program=np.broadcast_to((stage + 2).astype(np.uint64), (len(left), len(stage))),
        span=np.arange(len(left)),
        cut=np.zeros(0, dtype=np.bool_),
        ahead=0.0,
        stretches=True,
    )


def _stages(con: duckdb.DuckDBPyConnection, job: str, ranks: Ints) -> Ints:
    """The stage of each rank (r,), by which pipelines differ; -1 where there is none."""
    found = con.execute(
        "SELECT rank, stage FROM stage_layout WHERE job = ? AND stage IS NOT NULL", [job]
    ).fetchall()
    known = dict(found)
    return np.array([known.get(rank, -1) for rank in ranks.tolist()], dtype=np.int64)
