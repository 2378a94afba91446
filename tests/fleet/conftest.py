"""Nodes as folders, with the shards that their collectors would have sealed."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from oncall.evidence.columns import create_table_sql
from oncall.evidence.incident import Incident
from oncall.evidence.schema import TABLES
from oncall.node.store.shard_digest import ShardDigests
from oncall.node.store.writer import LiveStore, Place

WriteNodes = Callable[[Incident, Path], dict[str, Path]]
_ONCE = ("op_channels", "collectors", "launches")  # as they stand at the end


@pytest.fixture(scope="session")
def write_nodes() -> WriteNodes:
    """Write a simulated incident as the data folders of its nodes; returns node -> folder."""
    return _write_nodes


def _write_nodes(
    incident: Incident, root: Path, shards: int = 3, *, prepared: bool = True
) -> dict[str, Path]:
    con = incident.con
    ((low, high),) = con.execute(
        "SELECT min(enqueued_ns), max(coalesce(ended_ns, observed_ns)) FROM ops"
    ).fetchall()
    edges = [low + (high - low) * number // shards for number in range(shards)] + [high + 1]
    nodes = con.execute("SELECT DISTINCT node FROM ranks ORDER BY node").fetchall()
    folders = {node: root / node for (node,) in nodes}
    for node, folder in folders.items():
        folder.mkdir(parents=True)
        for number, (begin, end) in enumerate(pairwise(edges)):
            store = LiveStore(Place(folder, node), begin)
            writing = store.cursor()
            for table in TABLES:
                if table.name == "clocks" or (table.name in _ONCE and number < shards - 1):
                    continue
                if incident.is_empty(table.name):
                    continue
                part = folder / "part.parquet"
                where = _of_node(table.column_names, node)
                if table.name == "ops":
                    seen = "coalesce(ended_ns, observed_ns)"
                    where += f" AND {seen} >= {begin} AND {seen} < {end}"
                con.execute(f"COPY (SELECT * FROM {table.name} WHERE {where}) TO '{part}'")
                writing.execute(create_table_sql(table.name, table.columns))
                writing.execute(f"INSERT INTO {table.name} FROM '{part}'")
                part.unlink()
            writing.close()
            store.seal(end, ShardDigests().prepare if prepared else None)
    return folders


def _of_node(columns: tuple[str, ...], node: str) -> str:
    if "node" in columns:
        return f"node = '{node}'"
    if "rank" in columns:
        return f"rank IN (SELECT rank FROM ranks WHERE node = '{node}')"
    return "true"
