"""`oncall stacks` over the transport, with a stand-in for py-spy and processes that are ranks."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest

from oncall.core.errors import UsageError
from oncall.fleet.checkup.job_checkup import check_job
from oncall.fleet.endpoint.node import Node
from oncall.fleet.endpoint.serve import serve
from oncall.fleet.local import LocalTransport
from oncall.fleet.stacks import fleet_stacks
from oncall.node.store.wire import Request
from oncall.render.text.stacks import to_text
from oncall.views.stacks import folded

from .tree.gateways import DIES, Counted, Gateways

_SPY = r"""#!/bin/sh
for word; do pid=$word; done
rank=$(tr '\0' '\n' < /proc/$pid/environ | sed -n 's/^RANK=//p')
frame='{"name": "all_reduce", "short_filename": "torch/distributed/distributed_c10d.py", "line": 9}'
[ "$rank" = 2 ] && frame='{"name": "__next__",
"short_filename": "torch/utils/data/dataloader.py", "line": 7}'
echo "[{\"pid\": $pid, \"thread_id\": 1, \"thread_name\": \"MainThread\", \"os_thread_id\": $pid,"
echo "\"active\": true, \"owns_gil\": false, \"frames\": [$frame]}]"
"""
_JOB = f"stacks-{os.getpid()}"


@pytest.fixture
def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Path]]:
    """One living node, three ranks on it, and a py-spy on the PATH."""
    folder = tmp_path / "gpu1"
    (folder / "run").mkdir(parents=True)
    spy = tmp_path / "bin" / "py-spy"
    spy.parent.mkdir()
    spy.write_text(_SPY)
    spy.chmod(0o755)
    monkeypatch.setenv("PATH", f"{spy.parent}:{os.environ['PATH']}")
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", "import time; time.sleep(300)"],
            env={"RANK": str(rank), "ONCALL_JOB": _JOB, "NCCL_DEBUG": "INFO", "SECRET": "x"},
        )
        for rank in range(3)
    ]
    yield {"gpu1": folder}
    for rank in ranks:
        rank.kill()
        rank.wait()


def test_the_odd_one_out_comes_first(nodes: dict[str, Path]) -> None:
    transport = LocalTransport(nodes)
    taken = asyncio.run(fleet_stacks(transport, ["gpu1"], Request("stacks", job=_JOB)))
    with taken.incident as incident:
        seen = folded(incident)
        text = to_text(seen, taken, 3)
    assert seen.headline.startswith("rank 2 alone in data loader: __next__ at")
    assert [group.who for group in seen.groups] == ["rank 2", "ranks 0-1"]
    assert text.index("rank 2: data loader (gpu1 process") < text.index("ranks 0-1: collective")
    assert taken.problems == {}


@pytest.mark.parametrize("programs", [{}, {"gw1": DIES}], ids=["gateway", "gateway that fails"])
def test_a_gateway_takes_them_and_where_it_fails_the_console_does(
    nodes: dict[str, Path], programs: dict[str, str]
) -> None:
    direct, gateways = Counted(nodes), Gateways(nodes, programs)
    started = fleet_stacks(
        direct,
        ["gpu1"],
        Request("stacks", job=_JOB, looks=2, recorder=True),
        tree=gateways.tree(),
    )
    taken = asyncio.run(started)
    with taken.incident as incident:
        assert folded(incident).headline.startswith("rank 2 alone in data loader")
        looks = incident.con.execute("SELECT DISTINCT look FROM thread_stacks").fetchall()
        assert len(looks) == 2
    # What a node says of its processes comes through as well.
    assert [sorted(ranks) for ranks in taken.dumps.values()] == [[0, 1, 2]]
    assert set(taken.lost_gateways) == set(programs)
    assert direct.connections == (["gpu1"] if programs else [])


def test_a_gateway_may_be_silent_for_as_long_as_a_node_may_take(nodes: dict[str, Path]) -> None:
    """Its nodes take three looks, two seconds apart; the limit of silence is for other answers."""
    direct, gateways = Counted(nodes), Gateways(nodes, silence_s=3.0)
    started = fleet_stacks(
        direct,
        ["gpu1"],
        Request("stacks", job=_JOB, looks=3),
        tree=gateways.tree(),
        patience_s=30,
    )
    taken = asyncio.run(started)
    taken.incident.close()
    assert not taken.lost_gateways
    assert direct.connections == []


def test_a_job_that_does_not_run_there(nodes: dict[str, Path]) -> None:
    transport = LocalTransport(nodes)
    with pytest.raises(UsageError, match="no training process of job other"):
        asyncio.run(fleet_stacks(transport, ["gpu1"], Request("stacks", job="other")))


def test_what_a_job_is_set_to_record(nodes: dict[str, Path]) -> None:
    found, _ = asyncio.run(check_job(LocalTransport(nodes), ["gpu1"], _JOB))
    (one,) = found
    assert (one.ranks, one.hosts) == ((0, 1, 2), ("gpu1",))
    assert "INFO" in next(check.text for check in one.checks if check.name == "NCCL log")


def test_a_read_only_key_takes_no_stacks(tmp_path: Path) -> None:
    node, answers = Node("gpu1", tmp_path, tmp_path / "run"), BytesIO()
    serve(node, BytesIO(Request("stacks", job="j").line()), answers, read_only=True)
    assert b"may not take stacks" in answers.getvalue()
