"""A cluster of stand-ins: squeue, sacct, srun, kubectl and ray with the interface of the real
tools, which run the command on this machine as the node or pod that they were asked for."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from oncall.fleet.command_prefix import CommandPrefix, PrefixTransport
from oncall.fleet.configuration import FleetConfiguration
from oncall.fleet.outcome import HostError
from oncall_lab import TrainingScenario, simulate
from oncall_lab.training.fault import TrainingFault

STAND_INS = Path(__file__).parent / "stand_ins"
WriteNodes = Callable[..., dict[str, Path]]


@dataclass
class Cluster:
    """What the stand-ins know, the folders of the nodes, and the environment of a command."""

    folder: Path
    folders: dict[str, Path]
    known: dict[str, Any] = field(default_factory=dict)

    def node(self, name: str, **environment: str) -> dict[str, Any]:
        """The environment of a command on a node."""
        home = self.folder / "run" / name
        home.mkdir(parents=True, exist_ok=True)
        data = self.folders.get(name)
        evidence = {"ONCALL_DATA_DIR": str(data), "ONCALL_NODE": name} if data else {}
        there = {"PATH": str(self.folder / "bin"), "ONCALL_RUN_DIR": str(home)}
        return {"environment": {**there, **evidence, **environment}}

    def write(self) -> dict[str, str]:
        """Put the cluster in place; returns the environment in which the tools find it."""
        cluster = self.folder / "cluster.json"
        cluster.write_text(json.dumps(self.known))
        return {
            **os.environ,
            "PATH": f"{STAND_INS}{os.pathsep}{os.environ['PATH']}",
            "STAND_IN_CLUSTER": str(cluster),
            "XDG_CONFIG_HOME": str(self.folder / "config"),
            "XDG_CACHE_HOME": str(self.folder / "cache"),
        }

    def configure(self, text: str) -> None:
        """Write the [fleet] table of the user's configuration."""
        folder = self.folder / "config" / "oncall"
        folder.mkdir(parents=True)
        (folder / "config.toml").write_text(f"[fleet]\n{text}\n")

    def why_not(self, prefix: CommandPrefix, host: str) -> HostError:
        """Why a node does not answer through the stand-ins, which are on this process's PATH."""

        async def ask() -> None:
            transport = PrefixTransport(prefix, FleetConfiguration())
            async with transport.connect(host) as connection:
                await connection.hello()

        self.write()
        with pytest.raises(HostError) as raised:
            asyncio.run(ask())
        return raised.value

    def oncall(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run oncall where the stand-ins are on PATH."""
        return subprocess.run(
            [sys.executable, "-m", "oncall.cli.main", *words],
            env=self.write(),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


@pytest.fixture(scope="session")
def hung_nodes(
    tmp_path_factory: pytest.TempPathFactory, write_nodes: WriteNodes
) -> dict[str, Path]:
    """Shards of four nodes with two ranks each; rank 5 never entered a collective."""
    fault = TrainingFault("H1", ranks=(5,), at_ns=8 * 10**9)
    scenario = TrainingScenario(job="llama", tp=2, pp=1, dp=4, gpus_per_node=2, faults=(fault,))
    return write_nodes(simulate(scenario)[0], tmp_path_factory.mktemp("shards"))


@pytest.fixture
def cluster(hung_nodes: dict[str, Path], tmp_path: Path) -> Cluster:
    there = tmp_path / "bin"
    there.mkdir()
    (there / "oncall").write_text(f'#!/bin/sh\nexec {sys.executable} -m oncall.cli.main "$@"\n')
    (there / "oncall").chmod(0o755)
    return Cluster(tmp_path, hung_nodes)
