"""A live job on three nodes that are reached by a real sshd: gathered, and diagnosed rightly."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from loopback import PLAIN, Loopback, why_not

from oncall.demo.demonstration import PARAMETERS, broken_cluster
from oncall.demo.faults import fault_named
from oncall.demo.layout import JOB, Layout

_MOST_S = 120


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loopback]:
    """Three nodes without evidence."""
    if reason := why_not():
        pytest.skip(reason)
    with Loopback(tmp_path_factory.mktemp("live")) as running:
        yield running


def test_a_hang_on_three_nodes(
    nodes: Loopback,
    tmp_path: Path,
    configure: Callable[[str], Path],
    standin_job: None,  # noqa: ARG001
) -> None:
    ssh = json.dumps(["-F", str(nodes.config)])
    configure(f"[fleet]\nssh_options = {ssh}\n")
    places = [(name, nodes.nodes[name].data, nodes.nodes[name].run) for name in PLAIN]
    said: list[str] = []
    fault = fault_named("H1")
    with broken_cluster(
        fault, Layout.on(places, 8), tmp_path, lambda what, how: said.append(f"{what} {how}")
    ):
        options = [f"--param={name}={value}" for name, value in PARAMETERS.items()]
        options += ["--job", JOB, "--hosts", "gpu[001-003]", "--format", "json"]
        done = subprocess.run(
            [sys.executable, "-m", "oncall.cli.main", "diagnose", *options],
            env=os.environ | {"XDG_CONFIG_HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=_MOST_S,
            check=False,
        )
    assert done.returncode == 1, (said, done.stderr)
    diagnosis = json.loads(done.stdout)
    (root,) = [found for found in diagnosis["findings"] if found["explained_by"] is None]
    assert root["verdict"] == "H1"
    assert [(blame["rank"], blame["node"]) for blame in root["blame"]] == [(5, "gpu003")]
    coverage = diagnosis["coverage"]
    assert (coverage["nodes"], coverage["answered"], coverage["ranks_seen"]) == (3, 3, 8)
