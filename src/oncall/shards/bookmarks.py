"""What a collector must know of its predecessor: how far it had read, by name.

Bookmarks are committed with the rows they go with, so after a kill -9 they say exactly what was
written and what was read but lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import duckdb

from oncall.shards.catalog import sealed_shards
from oncall.shards.database import connect, quoted

TABLE = "bookmarks"
_NEWEST = 3  # a collector killed at once leaves a shard without any
CREATE = f"CREATE TABLE {TABLE} (name VARCHAR, value BIGINT)"


def write(con: duckdb.DuckDBPyConnection, bookmarks: Mapping[str, int]) -> None:
    """Replace all bookmarks, within the caller's transaction."""
    con.execute(f"DELETE FROM {TABLE}")
    con.execute(
        f"INSERT INTO {TABLE} SELECT unnest(?::VARCHAR[]), unnest(?::BIGINT[])",
        [list(bookmarks), list(bookmarks.values())],
    )


def under(prefix: str, bookmarks: Mapping[str, int]) -> dict[str, int]:
    """The bookmarks whose names begin with `prefix`, without it."""
    return {
        name.removeprefix(prefix): value
        for name, value in bookmarks.items()
        if name.startswith(prefix)
    }


def recall(folder: Path, node: str) -> dict[str, int]:
    """The newest bookmarks in the sealed shards; none if there are none, or none to be read."""
    shards = sealed_shards(folder, nodes=[node])
    for shard in reversed(shards[-_NEWEST:]):
        if found := _read(shard.path):
            return found
    return {}


def _read(path: Path) -> dict[str, int]:
    con = connect()
    try:
        con.execute(f"ATTACH '{quoted(path)}' AS newest (READ_ONLY)")
        return dict(con.execute(f"SELECT name, value FROM newest.{TABLE}").fetchall())
    except duckdb.Error:
        return {}
    finally:
        con.close()
