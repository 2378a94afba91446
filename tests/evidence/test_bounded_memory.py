"""Tables that do not fit into memory are kept on disk, within a bound, and leave nothing there."""

from __future__ import annotations

import tempfile
from pathlib import Path

import duckdb
import numpy as np
import pytest

from oncall.core import room
from oncall.evidence.incident import Incident
from oncall.rules.engine.sandbox import close_sandbox

MIB = 2**20
MORE = "SELECT range AS n, hash(range) AS a, hash(range + 1) AS b FROM range(30000000)"  # 720 MB


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_what_does_not_fit_is_kept_on_disk_and_goes_with_the_incident(place: Path) -> None:
    with Incident.empty() as incident:
        incident.bound_memory(256 * MIB)
        incident.con.execute("SET threads = 1")
        close_sandbox(incident.con, bounded=incident.memory_is_bounded)
        incident.con.execute(f"CREATE TABLE more AS {MORE} LIMIT 20000000")
        assert incident.rows("more") == 20_000_000
        (folder,) = place.iterdir()
        assert sum(file.stat().st_size for file in folder.iterdir()) > 100 * MIB
    assert not list(place.iterdir())


def test_a_runaway_fact_meets_a_bound_and_does_not_fill_the_disk(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oncall.evidence.incident._OVERFLOW", 1)
    with Incident.empty() as incident:
        incident.bound_memory(256 * MIB)
        close_sandbox(incident.con, bounded=incident.memory_is_bounded)
        with pytest.raises(duckdb.OutOfMemoryException):
            incident.con.execute(f"CREATE TABLE more AS {MORE}")
        (folder,) = place.iterdir()
        assert sum(file.stat().st_size for file in folder.iterdir()) < 300 * MIB


def test_without_a_place_on_disk_memory_is_bounded_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    with Incident.empty() as incident:
        incident.bound_memory(256 * MIB)
        assert not incident.memory_is_bounded
        close_sandbox(incident.con, 256 * MIB, bounded=incident.memory_is_bounded)
        with pytest.raises(duckdb.OutOfMemoryException):
            incident.con.execute(f"CREATE TABLE more AS {MORE}")


def test_less_than_duckdb_needs_is_not_taken_at_its_word() -> None:
    with Incident.empty() as incident:
        incident.bound_memory(1)
        assert incident.con.execute("SELECT current_setting('memory_limit')").fetchall() == [
            ("256.0 MiB",)
        ]


def test_a_quarter_is_that_of_the_container(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "/proc/self/cgroup": "0::/job\n",
        "/sys/fs/cgroup/job/memory.max": str(4096 * MIB),
        "/sys/fs/cgroup/job/memory.current": str(3000 * MIB),
        "/sys/fs/cgroup/job/memory.stat": f"inactive_file {1000 * MIB}\n",
    }
    monkeypatch.setattr(room, "_text", lambda path: files.get(str(path), ""))
    monkeypatch.setattr(room.os, "sysconf", lambda name: {"SC_PAGE_SIZE": MIB}.get(name, 2**20))
    assert room.quarter_bytes() == 1024 * MIB
    assert room._cgroup_bytes() == 2096 * MIB
    files["/sys/fs/cgroup/job/memory.max"] = "max"
    assert room.quarter_bytes() == 2**20 * MIB // 4
    files["/sys/fs/cgroup/job/memory.max"] = str(100 * MIB)
    assert room.quarter_bytes() == room.LEAST_BYTES


def test_many_rows_are_compressed_and_stay_the_same() -> None:
    rows = 600_000
    with Incident.empty() as incident:
        for _ in range(2):
            incident.append("ops", {"rank": np.arange(rows // 2), "job": "job", "done": True})
        ((table_bytes,),) = incident.con.execute(
            "SELECT sum(memory_usage_bytes) FROM duckdb_memory() WHERE tag = 'IN_MEMORY_TABLE'"
        ).fetchall()
        assert table_bytes < 20 * rows  # a row has 240 bytes, most of them of columns unknown here
        ((count, total),) = incident.con.execute("SELECT count(*), sum(rank) FROM ops").fetchall()
    assert (count, total) == (rows, 2 * sum(range(rows // 2)))
