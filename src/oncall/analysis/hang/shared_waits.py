"""For how much of the recorded time as many ranks waited as wait now.

Some rank waits in almost every running job, in some jobs all but one do for half of the time. What
a dump at any earlier instant would have shown is known from its own calls: from a rank's call of a
collective to the last member's it waited for that member.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import duckdb
import numpy as np

from oncall.analysis.common.ordering import Ints, sorted_by
from oncall.analysis.lost_time.arrays import Flags, nth_of, numbered
from oncall.evidence import relation

_COLUMNS = [
    ("job", "VARCHAR", "", "a job with waiting ranks, looked at nobody knows when"),
    ("waiting", "BIGINT", "ranks", "blocked in a call"),
    ("ranks", "BIGINT", "ranks", "those with data"),
    ("before", "DOUBLE", "0..1", "of the recorded time, that in which as many waited"),
    ("share", "DOUBLE", "0..1", "the same to be expected, with one more such wait"),
]
_NEVER = np.iinfo(np.int64).max
_SIZES = """
    SELECT job, comm, count(*) AS size, row_number() OVER (ORDER BY job, comm) - 1 AS number
    FROM members SEMI JOIN witnesses USING (job, rank) GROUP BY job, comm"""
# `joined`: all members called what does not end, some `members` of the job's ranks.
_JOBS = f"""
    WITH sizes AS ({_SIZES}),
    jobs AS (
        SELECT job, bool_and(how = 'together') AS joined, any_value(number) AS place,
            max(CASE kind WHEN 'p2p' THEN 2 ELSE size END) FILTER (how = 'together') AS members,
            any_value(greatest(coalesce(longest_gap_ns, 0), 1)) AS pause_ns
        FROM hang_roots LEFT JOIN job_quiet USING (job) LEFT JOIN sizes USING (job, comm)
        WHERE quiet_ns IS NULL GROUP BY job)
    SELECT job, joined, coalesce(place, -1), members, pause_ns, waiting, ranks
    FROM jobs
    JOIN (SELECT job, count(DISTINCT rank) AS waiting FROM front GROUP BY job) USING (job)
    JOIN (SELECT job, count(DISTINCT rank) AS ranks
          FROM members SEMI JOIN witnesses USING (job, rank) GROUP BY job) USING (job)"""
# The time in which every rank's calls are recorded.
_RECORDED = """
    SELECT max(first_ns) AS since_ns, greatest(min(last_ns), since_ns) AS until_ns
    FROM (SELECT min(called_ns) AS first_ns, max(called_ns) AS last_ns FROM operations
          WHERE job = $job AND called_ns IS NOT NULL AND (kind = 'coll' OR done) GROUP BY rank)"""
_CALLS = f"""
    SELECT rank::BIGINT AS rank, number AS comm, size, coalesce(seq, -1) AS seq, called_ns,
        coalesce(ended_ns, -1) AS ended_ns, kind = 'p2p' AS p2p, op = 'Send' AS sends,
        coalesce(peer, -1)::BIGINT AS peer
    FROM (FROM operations WHERE job = $job) JOIN ({_SIZES}) USING (job, comm)
    WHERE called_ns IS NOT NULL
        AND CASE WHEN kind = 'coll' THEN seq IS NOT NULL AND coalesce(number = $place, true)
            ELSE done AND $place IS NULL END"""


@relation(
    "shared_waits",
    reads=["hang_roots", "front", "job_quiet"],
    optional=["members", "witnesses", "operations"],
    empty_without=["front"],
    columns=_COLUMNS,
    source="beyond CCL-D",
)
def shared_waits(con: duckdb.DuckDBPyConnection) -> Mapping[str, Any]:
    """How many ranks of each job wait, and for how much of the time before as many did."""
    rows = []
    for job, joined, place, members, pause_ns, waiting, ranks in con.execute(_JOBS).fetchall():
        span_ns, waited_ns = _waited(con, job, waiting, place if joined else None)
        missing = max(ranks - waiting, members or 1)
        # One more pause is assumed, as long as the job's longest, in which each rank, or each
        # group that all wait for, may be missing: all that is known of a job without a past.
        if span_ns is None or (joined and members < ranks):
            share = missing / ranks
        elif not joined or waited_ns:
            share = (waited_ns + pause_ns * missing) / (span_ns + pause_ns * ranks)
        else:
            continue
        before = waited_ns / span_ns if span_ns and waited_ns else None
        rows.append((job, waiting, ranks, before, share))
    return shared_waits.by_column(rows)


def _waited(
    con: duckdb.DuckDBPyConnection, job: str, waiting: int, place: int | None
) -> tuple[int | None, int]:
    """Of the time in which every rank's calls are recorded, ns, None without any: that in which at
    least so many waited, if `place` is given in collectives of that communicator alone."""
    ((since_ns, until_ns),) = con.execute(_RECORDED, {"job": job}).fetchall()
    if since_ns is None:
        return None, 0
    calls = con.execute(_CALLS, {"job": job, "place": place}).fetchnumpy()
    if not len(calls["rank"]):
        return until_ns - since_ns, 0
    rank, from_ns, over_ns = _waits(calls, place is not None)
    order = sorted_by(rank, from_ns)
    from_ns, over_ns = np.maximum(from_ns[order], since_ns), over_ns[order]
    # Each rank's waits without what an earlier one covers.
    first = np.flatnonzero(np.diff(rank[order], prepend=-1))
    for begin, end in pairwise(np.append(first, len(order)).tolist()):
        latest_ns = np.maximum.accumulate(over_ns[begin:end])[:-1]
        from_ns[begin + 1 : end] = np.maximum(from_ns[begin + 1 : end], latest_ns)
    over_ns = np.minimum(over_ns, until_ns)
    apart = from_ns < over_ns
    return until_ns - since_ns, _shared(from_ns[apart], over_ns[apart], waiting)


def _shared(from_ns: Ints, over_ns: Ints, least: int) -> int:
    """For how long at least so many of the waits (n,) go on at once: after i have ended, from the
    begin of the wait number i + least until the next one ends."""
    if len(from_ns) < least:
        return 0
    from_ns, over_ns = np.sort(from_ns, kind="stable"), np.sort(over_ns, kind="stable")
    begins, ends = from_ns[least - 1 :], over_ns[: len(over_ns) - least + 1]
    begins[1:] = np.maximum(begins[1:], ends[:-1])
    return int(np.maximum(ends - begins, 0).sum())


def _waits(calls: Mapping[str, Any], joined: bool) -> tuple[Ints, Ints, Ints]:
    """Of each call in which somebody waited the rank, from when, and until when, ns.

    Ranks wait for a member until all have called; where all have (`joined`), for the operation to
    end, which the member that discovers it first shows best. Watchdogs see ends late: they count
    for a transfer of which only one end is recorded.
    """
    p2p, rank = calls["p2p"], calls["rank"]
    meeting = _meetings(calls, p2p, rank)
    # Rows of one collective of a rank are one call; the sides of a transfer are two.
    order = sorted_by(meeting, 2 * rank + (p2p & calls["sends"]))
    meeting, rank, p2p = meeting[order], rank[order], p2p[order]
    again = (np.diff(meeting) == 0) & (np.diff(rank) == 0) & ~p2p[1:]
    one = np.flatnonzero(np.append(True, ~again))
    called_ns = np.minimum.reduceat(calls["called_ns"][order], one)
    ended_ns = np.maximum.reduceat(calls["ended_ns"][order], one)
    meeting, rank, p2p = meeting[one], rank[one], p2p[one]
    first = np.flatnonzero(np.diff(meeting, prepend=-1))
    callers = np.diff(first, append=len(meeting))
    met_ns = np.maximum.reduceat(called_ns, first)
    over_ns = met_ns
    if joined:
        over_ns = np.minimum.reduceat(np.where(ended_ns < 0, _NEVER, ended_ns), first)
        over_ns[over_ns == _NEVER] = -1
    short = callers < np.where(p2p[first], 2, calls["size"][order[one[first]]])
    over_ns = np.repeat(over_ns, callers)
    over_ns = np.where(np.repeat(short, callers), np.where(p2p, ended_ns, -1), over_ns)
    from_ns = np.repeat(met_ns, callers) if joined else called_ns
    waits = over_ns > from_ns
    return rank[waits], from_ns[waits], over_ns[waits]


def _meetings(calls: Mapping[str, Any], p2p: Flags, rank: Ints) -> Ints:
    """The number (n,) of the collective or the transfer that each call is one of. Transfers are
    counted from the last that ended: rings lose the first of either end."""
    comm, seq = calls["comm"], calls["seq"]
    meeting = np.zeros(len(rank), dtype=np.int64)
    collective = ~p2p
    meeting[collective] = numbered(comm[collective], seq[collective])
    if not p2p.any():
        return meeting
    mine = np.flatnonzero(p2p)
    mine = mine[np.lexsort((-seq[mine], -calls["called_ns"][mine]))]
    sends, peer = calls["sends"][mine], calls["peer"][mine]
    pair = np.where(sends, rank[mine], peer), np.where(sends, peer, rank[mine])
    nth = nth_of(numbered(comm[mine], *pair, sends.astype(np.int64)))
    meeting[mine] = 1 + meeting.max() + numbered(comm[mine], *pair, nth)
    return meeting
