"""Noise added to incidents of an independent generator: measured with, so it must not move."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest

TOP = Path(__file__).parent.parent
SHARED = TOP.parent / "shared" / "judge_machines"
GENERATOR = Path(os.environ.get("JUDGE_MACHINES", SHARED))
COUNTERS = {  # by table: what tells its devices apart, and what may only grow
    "nics": ("node, nic, port", "tx_bytes ecn_marked retransmits pfc_rx_pause_ns corrected_bits"),
    "gpus": ("node, gpu", "ecc_corrected pcie_replays"),
    "hosts": ("node", "memory_corrected"),
    "host_processes": ("job, rank", "waited_ns major_faults read_bytes"),
}


def make(out: Path, *options: str) -> Path:
    command = [sys.executable, str(TOP / "benchmarks" / "busy_cluster.py"), *options]
    subprocess.run([*command[:3], str(out), *command[3:]], check=True, capture_output=True)
    return out


def rows(folder: Path, sql: str) -> list[tuple[Any, ...]]:
    (case,) = folder.glob("*/incident.oncall")
    with duckdb.connect(str(case), read_only=True) as con:
        return con.execute(sql).fetchall()


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One fault-free job without noise."""
    if not (GENERATOR / "generate.py").exists():
        pytest.skip(f"no generator at {GENERATOR}")
    folder = tmp_path_factory.mktemp("sound")
    return make(folder, "sound", "--seed", "4", "--count", "1", "--level", "none")


@pytest.fixture(scope="module")
def noisy(sound: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("noisy"), str(sound), "--seed", "7")


def test_noise_is_that_of_its_seed(sound: Path, noisy: Path, tmp_path: Path) -> None:
    same = make(tmp_path / "same", str(sound), "--seed", "7")
    other = make(tmp_path / "other", str(sound), "--seed", "8")
    for table in ("nics", "pings", "gpus", "hosts", "host_processes", "host_events"):
        every = f"SELECT * FROM {table} ORDER BY ALL"
        assert rows(same, every) == rows(noisy, every)
        assert rows(other, every) != rows(noisy, every) or not rows(sound, every)


@pytest.mark.parametrize("table", COUNTERS)
def test_counters_never_fall(sound: Path, noisy: Path, table: str) -> None:
    device, counters = COUNTERS[table]
    for counter in counters.split():
        past = f"lag({counter}) OVER (PARTITION BY {device} ORDER BY at_ns)"
        falls = (
            f"SELECT count(*) FROM (SELECT {counter} - {past} AS step FROM {table}) WHERE step < 0"
        )
        assert rows(noisy, falls) == rows(sound, falls) == [(0,)]
    assert rows(noisy, f"SELECT * FROM {table}") != rows(sound, f"SELECT * FROM {table}")


def test_what_a_job_did_and_what_is_unknown_stay(sound: Path, noisy: Path) -> None:
    for table in ("jobs", "ranks", "ops", "op_traffic", "epochs", "clocks"):
        every = f"SELECT count(*), sum(hash(t)::HUGEINT) FROM {table} t"
        assert rows(noisy, every) == rows(sound, every)
    for table in COUNTERS:
        known = f"SELECT count(*), count(COLUMNS(*)) FROM {table}"
        assert rows(noisy, known) == rows(sound, known)
