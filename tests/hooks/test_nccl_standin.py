"""A training job on the stand-in for NCCL: what shim and plugin tell together, and each alone."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oncall import native
from oncall.node.rings.ring import RingReader
from oncall.node.rings.ring_layout import RecordKind, Wait

Recorded = Callable[[Path], Any]  # conftest.py: reads a ring

_RANKS = 4
_LONG_NS = 300_000_000  # far more than any wait of a job that goes on
_STEPS = 2


def _train(folder: Path, *, shim: bool, plugin: bool, **environment: str) -> list[Path]:
    """Two tensor-parallel ranks in each of two pipeline stages; their rings, by rank."""
    with _training(folder, 2, shim=shim, plugin=plugin, **environment) as processes:
        assert [process.wait(timeout=120) for process in processes] == [0] * _RANKS
        return [_ring(folder, process) for process in processes]


def _ring(folder: Path, process: subprocess.Popen[bytes]) -> Path:
    return next(folder.glob(f"rings/{process.pid}-*.ring"))


@contextmanager
def _training(
    folder: Path, tensor: int, *, shim: bool, plugin: bool, **environment: str
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """The job's processes, by rank; they end with the block. `tensor` ranks share a layer."""
    hooks = str(native.hooks_library())
    settings = {"WORLD_SIZE": str(_RANKS), "ONCALL_RUN_DIR": str(folder), **environment}
    if shim:
        settings["LD_PRELOAD"] = hooks
    if plugin:
        settings["NCCL_PROFILER_PLUGIN"] = hooks
    command = [str(native.standin_folder() / "train"), "--unique-id-file", str(folder / "id")]
    command += ["--tp", str(tensor), "--pp", str(_RANKS // tensor), "--micro-batches", "2"]
    command += ["--steps", str(_STEPS), "--quiet"]
    processes = [
        subprocess.Popen(command, env={**os.environ, **settings, "RANK": str(rank)})
        for rank in range(_RANKS)
    ]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.mark.parametrize(
    ("shim", "plugin", "version"),
    [
        (True, True, "6"),
        (True, True, "5"),
        (True, True, "4"),
        (False, True, "6"),
        (False, True, "4"),
        (True, False, "6"),
    ],
)
def test_every_operation_is_reported_from_call_to_end(
    shim: bool, plugin: bool, version: str, tmp_path: Path, recorded: Recorded
) -> None:
    rings = _train(tmp_path, shim=shim, plugin=plugin, STANDIN_PROFILER_VERSION=version)
    members: dict[int, list[tuple[int, int]]] = {}
    for ring in map(recorded, rings):
        boards = ring.communicators()
        entered = ring.records(RecordKind.ENTERED)
        assert len(entered) > 20
        reported = [RecordKind.ENQUEUED]
        if plugin:
            reported += [RecordKind.DESCRIBED, RecordKind.STARTED, RecordKind.ENDED]
        for kind in reported:
            assert sorted(ring.records(kind)["operation"]) == sorted(entered["operation"])
        for board in boards:
            members.setdefault(int(board["identity"]), []).append(
                (int(board["rank"]), int(board["size"]))
            )
            for progress in ("collectives", "point_to_point"):
                ended = board[progress]["ended"]
                assert ended == (board[progress]["entered"] if plugin else 0)
        if plugin:
            _check_transfers(ring)
    # All members of a communicator, and only they, give it the same name.
    for ranks in members.values():
        [size] = {size for _, size in ranks}
        assert sorted(rank for rank, _ in ranks) == list(range(size))


def _check_transfers(ring: Any) -> None:
    """Each operation's counts are those of its transfers."""
    transfers = ring.records(RecordKind.TRANSFER)
    assert len(transfers)
    ended = {int(row["operation"]): row for row in ring.records(RecordKind.ENDED)}
    for number in np.unique(transfers["operation"]):
        own = transfers[transfers["operation"] == number]
        sends, recvs = own[own["is_send"] != 0], own[own["is_send"] == 0]
        assert ended[int(number)]["sends"] == sends["group"].sum()
        assert ended[int(number)]["recvs"] == recvs["group"].sum()
        assert ended[int(number)]["bytes"] == sends["bytes"].sum()


def test_the_stand_in_computes_what_nccl_would(tmp_path: Path) -> None:
    """Each value of each operation; how slices and channels fall is of no account."""
    command = [
        str(native.standin_folder() / "collectives"),
        "--unique-id-file",
        str(tmp_path / "id"),
    ]
    command += ["all_reduce:50003", "reduce_scatter:20001", "all_gather:7", "broadcast:30000"]
    command += ["neighbours:40000"]
    processes = [
        subprocess.Popen(command, env={**os.environ, "RANK": str(rank), "WORLD_SIZE": str(_RANKS)})
        for rank in range(_RANKS)
    ]
    assert [process.wait(timeout=120) for process in processes] == [0] * _RANKS


def test_shim_and_plugin_name_communicators_alike(tmp_path: Path, recorded: Recorded) -> None:
    for ring in map(recorded, _train(tmp_path, shim=True, plugin=True)):
        boards = ring.communicators()
        assert boards["name"].tolist() == [b"world", b"tp", b"dp", b"pp"]
        assert boards["identity_is_hash"].all() and boards["pointer"].all()
        assert (boards["parent"][1:] == boards["identity"][0]).all()
        assert boards["collectives"]["op"][0] != 0


# The transfers of a stuck ring AllReduce by (rank, is_send); rank 1 sends to 2 on the bad link.
_NOTHING_ARRIVES = {
    (1, True): Wait.SEND_WIRE,  # posted, never completed
    (2, False): Wait.RECV_WIRE,
    (2, True): Wait.SEND_GPU,  # its GPU has nothing to send on
    (0, False): Wait.RECV_WIRE,
}
_GPU_STANDS_STILL = {
    (1, True): Wait.SEND_GPU,
    (1, False): Wait.RECV_GPU,  # what has come is not consumed
    (2, False): Wait.RECV_WIRE,
    (0, True): Wait.SEND_GPU,
}


@pytest.mark.parametrize(
    ("fault", "waits"),
    [
        ("stall-link,rank=1,comm=tp,op=3,step=1", _NOTHING_ARRIVES),
        ("stall-gpu,rank=1,comm=tp,op=3,step=1", _GPU_STANDS_STILL),
    ],
)
def test_transfers_of_a_hang_say_what_they_wait_for(
    fault: str, waits: dict[tuple[int, bool], Wait], tmp_path: Path
) -> None:
    with _training(tmp_path, _RANKS, shim=True, plugin=True, STANDIN_FAULT=fault) as processes:
        seen: dict[tuple[int, bool], set[Wait]] = {}
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and any(
            seen.get(side) != {wait} for side, wait in waits.items()
        ):
            time.sleep(0.05)
            seen = _waits_of_oldest_operation(tmp_path, processes)
    assert {side: seen.get(side) for side in waits} == {side: {w} for side, w in waits.items()}


def _waits_of_oldest_operation(
    folder: Path, processes: list[subprocess.Popen[bytes]]
) -> dict[tuple[int, bool], set[Wait]]:
    """What its transfers have waited for for long, over all channels, by (rank, is_send)."""
    waits: dict[tuple[int, bool], set[Wait]] = {}
    for rank, process in enumerate(processes):
        if not any(folder.glob(f"rings/{process.pid}-*.ring")):
            continue
        with RingReader.open(_ring(folder, process), consume=False) as ring:
            boards = ring.transfers().rows
        boards = boards[time.monotonic_ns() - boards["since_ns"] > _LONG_NS]
        for board in boards[boards["operation"] == boards["operation"].min(initial=1 << 62)]:
            waits.setdefault((rank, bool(board["is_send"])), set()).add(Wait(board["wait"]))
    return waits
