"""Late of its own making, or late because it waited elsewhere?

A rank that comes last to one communicator may only have been held up in another. Between two
rounds of a communicator, a rank's time splits into time inside other operations and its own
time (computing, loading data, collecting garbage). A rank is itself the cause when its own time
exceeds its peers' by about as much as it came late.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import duckdb
import numpy as np

from oncall.evidence import relation


@relation(
    "own_time",
    reads=["operations"],
    optional=["arrivals"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("comm", "UBIGINT", "", "communicator"),
        ("seq", "BIGINT", "", "the round"),
        ("rank", "INTEGER", "", "global rank"),
        (
            "own_ns",
            "BIGINT",
            "ns",
            "time outside all operations since the last round here; NULL "
            "if the recorder lost an operation in between",
        ),
    ],
    source="beyond CCL-D: separates the late from those made late",
    at="node",
)
def own_time(con: duckdb.DuckDBPyConnection) -> Mapping[str, Any]:
    """For each collective of each rank: its own time since its previous one on that communicator.

    Where the end on the device is not recorded, an operation is taken to last for its duration,
    or until the last member arrived. All times are one rank's own, so clocks do not matter.
    """
    ops = con.execute(
        """SELECT job, comm, seq, rank, kind = 'coll' AS collective, entered_ns AS started_ns,
               entered_ns + coalesce(duration_ns, wait_ns, 0) AS ended_ns,
               seq - lag(seq) OVER (PARTITION BY job, rank, comm, kind ORDER BY seq) > 1 AS hole,
               dense_rank() OVER (ORDER BY job, rank) AS who
           FROM operations LEFT JOIN (SELECT *, 'coll' AS kind FROM arrivals)
               USING (job, comm, kind, seq, rank)
           WHERE entered_ns IS NOT NULL AND coalesce(done, true)
           ORDER BY who, started_ns"""
    ).fetchnumpy()
    if not len(ops["seq"]):
        return {name: [] for name in ("job", "comm", "seq", "rank", "own_ns")}
    who = np.asarray(ops["who"], dtype=np.int64)
    start = np.asarray(ops["started_ns"], dtype=np.int64)
    end = np.asarray(ops["ended_ns"], dtype=np.int64)
    new = np.append(True, np.diff(who) != 0)
    # A running maximum of ends per rank: shifting each rank above the one before keeps them apart.
    base = start.min()
    span = max(int(end.max() - base), 1) + 1
    shifted = np.maximum.accumulate((end - base) + (who - who[0]) * span)
    busy_until = np.empty_like(start)
    busy_until[1:] = shifted[:-1] - (who[1:] - who[0]) * span + base
    own = np.where(new, 0, np.maximum(start - np.where(new, start, busy_until), 0))
    total = np.cumsum(own)
    collective = np.asarray(ops["collective"], dtype=bool)
    rows = np.flatnonzero(collective)
    order = rows[np.lexsort((start[rows], np.asarray(ops["comm"])[rows], who[rows]))]
    comm = np.asarray(ops["comm"])[order]
    first = np.append(True, (np.diff(who[order]) != 0) | (comm[1:] != comm[:-1]))
    since = np.append(0, np.diff(total[order]))
    # The time of an operation that the recorder lost would pass for the rank's own.
    holes = np.cumsum(np.ma.filled(np.ma.asarray(ops["hole"]), False))
    torn = np.append(False, np.diff(holes[order]) > 0)
    keep = ~first  # the first round has no earlier one to count from
    chosen = order[keep]
    return {
        **{name: ops[name][chosen] for name in ("job", "comm", "seq", "rank")},
        "own_ns": np.ma.MaskedArray(since[keep], mask=torn[keep]),
    }
