"""What a rank would have called next: what it called before after the same calls.

The times at which others began to wait do not show which of several calls a rank missed first:
replicas run ahead of one another, and some calls are made long before they are needed. Training
repeats itself, so the rank's own history shows which call comes next.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
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
