"""A training job without a fault computes the same bits with the hooks and without, whatever limit
keeps them from recording."""

from __future__ import annotations

import os
import resource
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from oncall import native

_RANKS = 4
_HOOKS, _VERBS = str(native.hooks_library()), str(native.verbs_library())
_BOTH = {"LD_PRELOAD": f"{_HOOKS}:{_VERBS}", "NCCL_PROFILER_PLUGIN": _HOOKS}


def _sums(
    folder: Path,
    *,
    steps: int = 3,
    environment: Mapping[str, str] | None = None,
    limit: Callable[[], object] | None = None,
    disturb: Callable[[Path], object] = lambda _: None,
    **options: Any,
) -> list[str]:
    """The sum of each rank's parameters at the end of a job, by rank."""
    folder.mkdir()
    command = [str(native.standin_folder() / "train"), "--unique-id-file", str(folder / "id")]
    command += ["--tp", "2", "--pp", "2", "--micro-batches", "2", "--compute-us", "100", "--quiet"]
    settings = {"WORLD_SIZE": str(_RANKS), "ONCALL_RUN_DIR": str(folder), **(environment or {})}
    processes = [
        subprocess.Popen(
            [*command, "--steps", str(steps), "--checksum"],
            env={**os.environ, **settings, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=limit,
            **options,
        )
        for rank in range(_RANKS)
    ]
    disturb(folder)
    said = [process.communicate(timeout=120)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * _RANKS
    return said


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Those of a job without our hooks."""
    return _sums(tmp_path_factory.mktemp("bare") / "job")


def _rings(folder: Path) -> list[Path]:
    return list(folder.glob("rings/*.ring"))


def _cut_rings(folder: Path) -> None:
    deadline = time.monotonic() + 60
    while len(rings := _rings(folder)) < _RANKS and time.monotonic() < deadline:
        time.sleep(0.001)
    for ring in rings:
        os.truncate(ring, 0)


def test_a_sum_tells_one_job_from_another(bare: list[str], tmp_path: Path) -> None:
    assert len(set(bare)) == _RANKS
    assert _sums(tmp_path / "again") == bare
    assert not set(_sums(tmp_path / "longer", steps=4)) & set(bare)


@pytest.mark.parametrize("version", ["6", "5", "4"])
def test_recorded(bare: list[str], tmp_path: Path, version: str) -> None:
    job = tmp_path / "job"
    assert _sums(job, environment={**_BOTH, "STANDIN_PROFILER_VERSION": version}) == bare
    assert len(_rings(job)) == _RANKS


def test_a_ring_that_is_full(bare: list[str], tmp_path: Path) -> None:
    assert _sums(tmp_path / "job", environment={**_BOTH, "ONCALL_RING_RECORDS": "64"}) == bare


def test_rings_cut_short(bare: list[str], tmp_path: Path) -> None:
    job = tmp_path / "job"
    assert _sums(job, environment=_BOTH, disturb=_cut_rings) == bare
    assert all(ring.stat().st_size == 0 for ring in _rings(job))


@pytest.mark.parametrize(
    ("limit", "value"),
    [
        (resource.RLIMIT_FSIZE, 4 << 20),
        (resource.RLIMIT_FSIZE, 64 << 10),
        (resource.RLIMIT_CORE, 0),
    ],
)
def test_under_a_limit(bare: list[str], tmp_path: Path, limit: int, value: int) -> None:
    job = tmp_path / "job"

    def limited() -> None:
        resource.setrlimit(limit, (value, value))

    assert _sums(job, environment=_BOTH, limit=limited) == bare
    assert bool(_rings(job)) == (limit == resource.RLIMIT_CORE)


@pytest.mark.parametrize(
    "environment",
    [
        {"ONCALL_RUN_DIR_ON_DISK": "0", "ONCALL_DEBUG": "1"},
        {"ONCALL_RUN_DIR": "/dev/null", "ONCALL_DEBUG": "1"},
        {"ONCALL_RUN_DIR": "x" * 10_000},
        {"ONCALL_DISABLE": "1"},
    ],
    ids=lambda environment: next(iter(environment)),
)
def test_without_a_place(bare: list[str], tmp_path: Path, environment: dict[str, str]) -> None:
    """Nobody reads stderr: what is said there must not end the job either."""
    read, write = os.pipe()
    os.close(read)
    sums = _sums(tmp_path / "job", environment={**_BOTH, **environment}, stderr=write)
    os.close(write)
    assert sums == bare
