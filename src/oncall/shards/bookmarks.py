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
CREATE = f"CREATE TABLE {TABLE} (name VARCHAR, value BIGINT)"


def write(con: duckdb.DuckDBPyConnection, bookmarks: Mapping[str, int]) -> None:
    """Replace all bookmarks, within the caller's transaction."""
    con.execute(f"DELETE FROM {TABLE}")
    con.execute(
        f"INSERT INTO {TABLE} SELECT unnest(?::VARCHAR[]), unnest(?::BIGINT[])",
        [list(bookmarks), list(bookmarks.values())],
    )


def recall(folder: Path, node: str) -> dict[str, int]:
    """The bookmarks in the newest sealed shard; none if there is none, or none to be read."""
    shards = sealed_shards(folder, nodes=[node])
    if not shards:
        return {}
    con = connect()
    try:
        con.execute(f"ATTACH '{quoted(shards[-1].path)}' AS newest (READ_ONLY)")
        return dict(con.execute(f"SELECT name, value FROM newest.{TABLE}").fetchall())
    except duckdb.Error:
        return {}
    finally:
        con.close()
