"""DuckDB files that others may have written or a disk may have damaged: incidents and shards."""

from __future__ import annotations

import tempfile
from pathlib import Path

import duckdb

from oncall.core.errors import BadInput
from oncall.evidence.incident import Incident
from oncall.node.store.batch import one_row
from oncall.node.store.catalog import parse_shard
from oncall.node.store.reader import open_shards
from oncall.node.store.writer import LiveStore, Place, StoreError, recover

from ..registry import file_of, target

_SHARD = "gpu017.1000000000000000000-1000000000000000100.duckdb"


def _incidents() -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.oncall")
        with Incident.empty() as incident:
            incident.append("jobs", {"job": ["llama"], "world_size": [8]})
            incident.append("ranks", {"job": "llama", "rank": list(range(8)), "node": "gpu017"})
            incident.save(path)
        return [path.read_bytes()]


@target(_incidents)
def saved_incidents(data: bytes) -> None:
    """A saved incident, opened."""
    with file_of(data, "x.oncall") as path:
        try:
            Incident.open(path).close()
        except BadInput as error:
            assert str(path) in error.place


def _shards() -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        store = LiveStore(Place(Path(folder), "gpu017"), 10**18)
        store.write([one_row("jobs", job="llama"), one_row("ranks", job="llama", rank=1)], {"a": 1})
        return [store.seal(10**18 + 100).path.read_bytes()]


@target(_shards)
def sealed_shards(data: bytes) -> None:
    """A shard as every question reads it: rows, or a gap with its reason."""
    with file_of(data, _SHARD) as path:
        shard = parse_shard(path)
        assert shard is not None
        with open_shards([shard]) as shards:
            try:
                shards.con.execute("SELECT count(*), max(rank) FROM ranks").fetchall()
            except duckdb.Error:
                assert shards.leave_out_damaged()
                shards.con.execute("SELECT count(*) FROM ranks").fetchall()


@target(_shards)
def live_stores(data: bytes) -> None:
    """What a killed collector left behind: sealed, or set aside."""
    with file_of(data, "live.duckdb") as path:
        place = Place(path.parent, "gpu017")
        try:
            found = recover(place, 2 * 10**18)
        except StoreError:
            return
        assert not path.exists()
        assert bool(found.set_aside) == bool(found.problem)
