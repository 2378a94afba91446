"""Waits read from arrivals, for recordings that keep calls but no durations.

What a member waits in a round is the time from its own arrival to the last one's. Clocks differ
between hosts, so each rank's usual offset within the communicator is taken off first: skew and a
constant head start look alike and are neither a fault.
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


@relation(
    "arrivals",
    reads=["operations"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("comm", "UBIGINT", "", "communicator"),
        ("seq", "BIGINT", "", "the round"),
        ("rank", "INTEGER", "", "global rank"),
        ("wait_ns", "BIGINT", "ns", "from its arrival to the last one's, offsets taken off"),
    ],
    source="CCL-D 4.2.1, without durations",
)
def arrivals(con: duckdb.DuckDBPyConnection) -> Mapping[str, Any]:
    """Each member's wait in each collective round of jobs that record no durations."""
    calls = con.execute(
        """SELECT job, comm, seq, rank, entered_ns FROM operations
           SEMI JOIN (SELECT job FROM ops GROUP BY job HAVING count(duration_ns) = 0
                      AND count(CASE WHEN started_ns IS NOT NULL THEN ended_ns END) = 0)
               USING (job)
           WHERE kind = 'coll' AND entered_ns IS NOT NULL AND coalesce(done, true)
           ORDER BY job, comm, seq"""
    ).fetchnumpy()
    keep, first = _shared_rounds(calls)
    calls = {name: values[keep] for name, values in calls.items()}
    entered_ns = np.asarray(calls["entered_ns"], dtype=np.int64)
    if not len(entered_ns):
        return {name: [] for name in ("job", "comm", "seq", "rank", "wait_ns")}
    round_of = np.repeat(np.arange(len(first)), np.diff(np.append(first, len(entered_ns))))
    arrival = without_offsets(entered_ns, round_of, first, _members(calls))
    return {
        **{name: calls[name] for name in ("job", "comm", "seq", "rank")},
        "wait_ns": np.maximum.reduceat(arrival, first)[round_of] - arrival,
    }


def _shared_rounds(calls: Mapping[str, Any]) -> tuple[npt.NDArray[np.bool_], Ints]:
    """Which rows belong to rounds of two members or more, and where those rounds then start."""
    count = len(calls["seq"])
    new = np.ones(count, dtype=bool)
    new[1:] = False
    for name in ("job", "comm", "seq"):
        new[1:] |= np.asarray(calls[name][1:] != calls[name][:-1], dtype=bool)
    first = np.flatnonzero(new)
    sizes = np.diff(np.append(first, count))
    keep = np.repeat(sizes > 1, sizes)
    kept = sizes[sizes > 1]
    return keep, np.cumsum(kept) - kept


def _members(calls: Mapping[str, Any]) -> Ints:
    """A number for each membership (job, comm, rank), row by row."""
    rank = np.asarray(calls["rank"], dtype=np.int64)
    new = np.ones(len(rank), dtype=bool)
    new[1:] = False
    for name in ("job", "comm"):
        new[1:] |= np.asarray(calls[name][1:] != calls[name][:-1], dtype=bool)
    key = np.cumsum(new) * (int(rank.max(initial=0)) + 1) + rank
    return np.unique(key, return_inverse=True)[1].astype(np.int64)


def without_offsets(entered_ns: Ints, round_of: Ints, first: Ints, member: Ints) -> Ints:
    """Arrivals within their round, less each member's usual place in its first rounds.

    Rows are sorted by round; `round_of` (n,) numbers each row's round, `first` (rounds,) is each
    round's first row, `member` (n,) numbers the memberships. The usual place is a median.
    """
    sizes = np.diff(np.append(first, len(entered_ns)))
    # Relative to the round's first row: a float cannot hold Unix nanoseconds.
    relative = entered_ns - entered_ns[first][round_of]
    relative = relative - (np.add.reduceat(relative, first) // sizes)[round_of]
    order = np.argsort(member, kind="stable")
    starts = np.flatnonzero(np.append(True, np.diff(member[order]) != 0))
    rounds = np.diff(np.append(starts, len(order)))
    few = np.minimum(OFFSET_ROUNDS, np.maximum(1, rounds // OFFSET_SHARE))
    usual = np.zeros(len(starts), dtype=np.int64)
    for number in np.unique(few):
        chosen = np.flatnonzero(few == number)
        rows = order[starts[chosen][:, np.newaxis] + np.arange(number)]
        usual[chosen] = np.median(relative[rows], axis=1)
    return np.asarray(relative - usual[member], dtype=np.int64)
