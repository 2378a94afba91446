"""What a collector must know of its predecessor, by name: how far it had read, what was in flight.

Bookmarks are committed with the rows they go with, so after a kill -9 they say exactly what was
written and what was read but lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import duckdb

from oncall.evidence.statements import quoted
from oncall.node.store.catalog import sealed_shards
from oncall.node.store.database import connect
from oncall.node.store.retention import in_sealing_order

TABLE = "bookmarks"
Bookmark: TypeAlias = int | bytes
# A collector that is killed at once leaves a shard without any; one that cannot live leaves many.
_NEWEST = 200
CREATE = f"CREATE TABLE {TABLE} (name VARCHAR, value BIGINT, content BLOB)"


def write(con: duckdb.DuckDBPyConnection, bookmarks: Mapping[str, Bookmark]) -> None:
    """Replace all bookmarks, within the caller's transaction."""
    con.execute(f"DELETE FROM {TABLE}")
    con.execute(
        f"INSERT INTO {TABLE} SELECT unnest(?::VARCHAR[]), unnest(?::BIGINT[]), unnest(?::BLOB[])",
        [
            list(bookmarks),
            [None if isinstance(mark, bytes) else mark for mark in bookmarks.values()],
            [mark if isinstance(mark, bytes) else None for mark in bookmarks.values()],
        ],
    )


def under(prefix: str, bookmarks: Mapping[str, Bookmark]) -> dict[str, Bookmark]:
    """The bookmarks whose names begin with `prefix`, without it."""
    return {
        name.removeprefix(prefix): value
        for name, value in bookmarks.items()
        if name.startswith(prefix)
    }


def replaced(
    bookmarks: Mapping[str, Bookmark], *newer: Mapping[str, Mapping[str, Bookmark]]
) -> dict[str, Bookmark]:
    """All bookmarks, named by source, after newer ones of some sources took the place of theirs.
    `newer` from the oldest: all that each source has now, by its name."""
    by_source = {source: marks for each in newer for source, marks in each.items()}
    kept = {
        name: mark for name, mark in bookmarks.items() if name.partition("/")[0] not in by_source
    }
    for source, marks in by_source.items():
        kept |= {f"{source}/{name}": mark for name, mark in marks.items()}
    return kept


def recall(folder: Path, node: str) -> dict[str, Bookmark]:
    """The newest bookmarks in the sealed shards; none if there are none, or none to be read.

    The newest by the order of sealing: a clock that was set back names older ones later.
    """
    shards = in_sealing_order(folder, sealed_shards(folder, nodes=[node]))
    for shard in reversed(shards[-_NEWEST:]):
        if found := _read(shard.path):
            return found
    return {}


def _read(path: Path) -> dict[str, Bookmark]:
    con = connect()
    try:
        con.execute(f"ATTACH '{quoted(path)}' AS newest (READ_ONLY)")
        rows = con.execute(f"SELECT * FROM newest.{TABLE}").fetchall()
        # A shard of before there was content has two columns.
        return {name: mark for name, *marks in rows for mark in marks if mark is not None}
    except duckdb.Error:
        return {}
    finally:
        con.close()
