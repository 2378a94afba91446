"""A training job on the stand-in for NCCL: what shim and plugin tell together, and each alone."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oncall import native
from oncall.collect.ring_layout import RecordKind

Recorded = Callable[[Path], Any]  # conftest.py: reads a ring

_RANKS = 4
_STEPS = 2


def _train(folder: Path, *, shim: bool, plugin: bool, **environment: str) -> list[Path]:
    """Two tensor-parallel ranks in each of two pipeline stages; their rings, by rank."""
    hooks = str(native.hooks_library())
    settings = {"WORLD_SIZE": str(_RANKS), "ONCALL_RUN_DIR": str(folder), **environment}
    if shim:
        settings["LD_PRELOAD"] = hooks
    if plugin:
        settings["NCCL_PROFILER_PLUGIN"] = hooks
    command = [str(native.standin_folder() / "train"), "--unique-id-file", str(folder / "id")]
    command += ["--tp", "2", "--pp", "2", "--micro-batches", "2", "--steps", str(_STEPS), "--quiet"]
    processes = [
        subprocess.Popen(command, env={**os.environ, **settings, "RANK": str(rank)})
        for rank in range(_RANKS)
    ]
    try:
        assert [process.wait(timeout=120) for process in processes] == [0] * _RANKS
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return [next(folder.glob(f"rings/{process.pid}-*.ring")) for process in processes]


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
def test_every_operation_is_told_from_call_to_end(
    shim: bool, plugin: bool, version: str, tmp_path: Path, recorded: Recorded
) -> None:
    rings = _train(tmp_path, shim=shim, plugin=plugin, STANDIN_PROFILER_VERSION=version)
    members: dict[int, list[tuple[int, int]]] = {}
    for ring in map(recorded, rings):
        boards = ring.communicators()
        entered = ring.records(RecordKind.ENTERED)
        assert len(entered) > 20
        told = [RecordKind.ENQUEUED]
        if plugin:
            told += [RecordKind.DESCRIBED, RecordKind.STARTED, RecordKind.ENDED]
        for kind in told:
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


def test_shim_and_plugin_name_communicators_alike(tmp_path: Path, recorded: Recorded) -> None:
    for ring in map(recorded, _train(tmp_path, shim=True, plugin=True)):
        boards = ring.communicators()
        assert boards["name"].tolist() == [b"world", b"tp", b"dp", b"pp"]
        assert boards["identity_is_hash"].all() and boards["pointer"].all()
        assert (boards["parent"][1:] == boards["identity"][0]).all()
        assert boards["collectives"]["op"][0] != 0
