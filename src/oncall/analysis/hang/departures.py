"""What ranks would have called: next, by their own history, and beside others, as most do.

The times at which others began to wait do not show which of several calls a rank missed first:
replicas run ahead of one another, and some calls are made long before they are needed. Training
repeats itself, so the rank's own history shows which call comes next.

The ranks of a job run the same program: after one operation, identified by its number in groups of
one role, they make the same calls. Of ranks in a cycle, the few that called something else there
began it, provided that they used to call there what most ranks call: pipeline stages differ by
design.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

import duckdb

Call = TypeVar("Call", bound=Hashable)

_CONTEXT = 64  # calls compared: more than a layer makes
_LEAST_CONTEXT = 2
_MOST_RANKS = 16  # more that stopped at once are a host, not a program


def next_calls(
    con: duckdb.DuckDBPyConnection, job: str, ranks: Iterable[int]
) -> Mapping[int, Mapping[tuple[int, str], int]]:
    """For each of the ranks: communicator and kind -> when it would be called next, 0 first.

    Empty for a rank whose history does not repeat.
    """
    chosen = sorted(ranks)[:_MOST_RANKS]
    history: dict[int, list[tuple[int, str]]] = defaultdict(list)
    for rank, comm, kind in con.execute(
        "SELECT rank, comm, kind FROM operations WHERE job = ? AND list_contains(?, rank) "
        "AND called_ns IS NOT NULL ORDER BY called_ns, seq",
        [job, chosen],
    ).fetchall():
        history[rank].append((comm, kind))
    return {
        rank: {call: place for place, call in enumerate(dict.fromkeys(following(calls)))}
        for rank, calls in history.items()
    }


def following(calls: Sequence[Call]) -> Sequence[Call]:
    """What came after the earlier place whose calls before it agree longest with the last calls."""
    end = len(calls)
    best, longest = end, _LEAST_CONTEXT - 1
    for place in range(end - 1, 0, -1):
        length = 0
        while (
            length < min(place, _CONTEXT) and calls[place - 1 - length] == calls[end - 1 - length]
        ):
            length += 1
        if length > longest:
            best, longest = place, length
    return calls[best:]


_LEAST_VOTERS = 3  # of two that differ either may be wrong

_DEPARTED = """
    WITH calls AS (
        SELECT rank, o.comm, o.kind, seq, coalesce(m.role, m.name, o.comm::VARCHAR) AS place,
            concat_ws(' ', op, place) AS call,
            row_number() OVER (PARTITION BY rank ORDER BY called_ns, seq) AS nth
        FROM operations o LEFT JOIN members m USING (job, comm, rank)
        WHERE o.job = $job AND called_ns IS NOT NULL),
    steps AS (
        SELECT b.rank, b.nth, a.place, a.kind, a.seq, a.call AS before, b.call
        FROM calls a JOIN calls b ON b.rank = a.rank AND b.nth = a.nth + 1),
    stuck AS (
        SELECT DISTINCT ON (c.rank) c.* FROM calls c JOIN blocked_operations b
            ON b.job = $job AND b.rank = c.rank AND b.comm = c.comm AND b.seq = c.seq
                AND b.kind = c.kind
        WHERE list_contains($ranks, c.rank)
        ORDER BY c.rank, coalesce(b.entered_ns, b.called_ns), c.seq),
    -- What each called before any of these, with what it called since, up to its own.
    since AS (
        SELECT rank, min(nth) AS nth FROM (
            SELECT c.rank, s.comm, max(c.nth) AS nth FROM calls c JOIN stuck s
                ON s.comm = c.comm AND s.kind = c.kind AND c.seq < s.seq
            GROUP BY ALL)
        GROUP BY rank),
    mine AS (
        SELECT s.* FROM steps s JOIN stuck b USING (rank) LEFT JOIN since f USING (rank)
        WHERE s.nth BETWEEN coalesce(f.nth, b.nth) AND b.nth)
    SELECT rank FROM (
        SELECT m.rank, m.call, m.place, m.seq, m.before, mode(s.call) AS most
        FROM mine m JOIN steps s USING (place, kind, seq, before) GROUP BY ALL
        HAVING count(*) >= $voters AND 2 * count(*) FILTER (s.call = m.call) < count(*)) o
    WHERE EXISTS (FROM steps e
        WHERE e.rank = o.rank AND e.place = o.place AND e.before = o.before AND e.call = o.most)
"""


def departed(con: duckdb.DuckDBPyConnection, job: str, ranks: Collection[int]) -> tuple[int, ...]:
    """Those of these ranks that called otherwise than most after the same operation; all of the
    ranks if the calls do not show it, or if more than half called otherwise."""
    known = {"job": job, "ranks": [*ranks], "voters": _LEAST_VOTERS}
    found = tuple(sorted(rank for (rank,) in con.execute(_DEPARTED, known).fetchall()))
    return found if 0 < 2 * len(found) <= len(ranks) else tuple(ranks)
