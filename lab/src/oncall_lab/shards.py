"""Simulated evidence as the collectors of its nodes would have sealed it: a data folder a node."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from oncall.core.errors import UsageError
from oncall.evidence.incident import Incident
from oncall.evidence.schema import BY_NAME
from oncall.node.store.batch import Batch
from oncall.node.store.database import Limits
from oncall.node.store.shard_digest import ShardDigests
from oncall.node.store.writer import LiveStore, Place, StoreError

if TYPE_CHECKING:
    import duckdb

SHARD_NS = 60 * 10**9
_LIMITS = Limits(memory_bytes=1024 * 2**20)  # nobody trains beside a simulation

# When a row was written. A node knows its own ranks, and of each the memberships.
_WRITTEN = {
    "ops": "coalesce(ended_ns, observed_ns)",
    "transfers": "coalesce(ended_ns, observed_ns)",
    "op_channels": "observed_ns",
    "launches": "at_ns",
}
# What a node says of itself, at an instant; traffic by its begin.
_OF_THE_NODE = (
    "collectors", "nics", "nic_priorities", "gpus", "hosts", "host_processes", "devices",
    "host_events", "pings",
)  # fmt: skip
_TRAFFIC = {"epochs": "start_ns", "op_traffic": "started_ns", "wr_windows": "end_ns"}
_EVERY_TIME = ("jobs", "ranks", "comms", "qps", "links")


def write_shards(incident: Incident, folder: Path) -> int:
    """A folder of sealed shards for each node under `folder`; returns how many nodes.

    Raises UsageError if the folder cannot be written.
    """
    con = incident.con
    _name_peers_as_nodes_do(con)
    nodes = [row[0] for row in con.execute("SELECT DISTINCT node FROM ranks ORDER BY 1").fetchall()]
    for node in nodes:
        try:
            (folder / node).mkdir(parents=True, exist_ok=True)
            _write_node(con, node, folder / node)
        except (OSError, StoreError) as error:
            raise UsageError(f"cannot write to {folder / node}: {error}") from error
    return len(nodes)


def _name_peers_as_nodes_do(con: duckdb.DuckDBPyConnection) -> None:
    """A node knows its peers only as rank within the communicator."""
    for table in ("ops", "transfers"):
        con.execute(
            f"UPDATE {table} SET comm_peer = c.comm_rank, peer = NULL FROM comms c "
            f"WHERE (c.job, c.comm, c.rank) = ({table}.job, {table}.comm, {table}.peer)"
        )


def _write_node(con: duckdb.DuckDBPyConnection, node: str, folder: Path) -> None:
    con.execute(
        "CREATE OR REPLACE TEMP TABLE here AS SELECT job, rank FROM ranks WHERE node = ?", [node]
    )
    for table, written in _WRITTEN.items():
        con.execute(
            f"CREATE OR REPLACE TEMP TABLE here_{table} AS "
            f"SELECT *, {written} // {SHARD_NS} AS shard FROM {table} "
            "SEMI JOIN here USING (job, rank)"
        )
    of_the_node = dict.fromkeys(_OF_THE_NODE, "at_ns") | _TRAFFIC
    for table, instant in of_the_node.items():
        con.execute(
            f"CREATE OR REPLACE TEMP TABLE here_{table} AS "
            f"SELECT *, {instant} // {SHARD_NS} AS shard FROM {table} WHERE node = ?",
            [node],
        )
    instants = {**_WRITTEN, **of_the_node}
    union = " UNION ALL ".join(
        f"SELECT shard, {w} AS written_ns FROM here_{t}" for t, w in instants.items()
    )
    spans = con.execute(
        f"SELECT shard, max(written_ns) FROM ({union}) WHERE shard IS NOT NULL "
        "GROUP BY shard ORDER BY shard"
    ).fetchall()
    for shard, last_ns in spans:
        store = LiveStore(Place(folder, node), shard * SHARD_NS, _LIMITS)
        store.write([*_batches(con, shard)])
        store.seal(min((shard + 1) * SHARD_NS, last_ns + 1), ShardDigests().prepare)


def _batches(con: duckdb.DuckDBPyConnection, shard: int) -> Iterator[Batch]:
    for table in _EVERY_TIME:
        mine = "" if table in ("jobs", "links") else "SEMI JOIN here USING (job, rank)"
        yield from _batch(con, table, f"SELECT * FROM {table} {mine}")
    for table in (*_WRITTEN, *_OF_THE_NODE, *_TRAFFIC):
        query = f"SELECT * EXCLUDE (shard) FROM here_{table} WHERE shard = {shard}"
        yield from _batch(con, table, query)


def _batch(con: duckdb.DuckDBPyConnection, table: str, query: str) -> Iterator[Batch]:
    columns: dict[str, Any] = con.execute(query).fetchnumpy()
    rows = len(next(iter(columns.values())))
    for column in BY_NAME[table].columns:
        if column.type.endswith("[]"):
            lists = columns[column.name]
            columns[column.name] = [np.asarray(each).tolist() or None for each in lists]
    if rows:
        yield Batch(table, rows, columns)
