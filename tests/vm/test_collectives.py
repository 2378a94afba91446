"""Collectives of real processes over real queue pairs: found again in what the queue pairs sent,
operation by operation, and where they break, the diagnosis names who."""

from __future__ import annotations

import ipaddress
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
from numpy.typing import NDArray

from oncall.evidence.incident import Incident
from oncall.node.store.catalog import sealed_shards
from oncall.node.store.reader import open_shards

from .conftest import Guest
from .guest_sizes import MIX, RANKS, ROUNDS

# Building the machine and running it is counted with the first test.
pytestmark = pytest.mark.timeout(1200)

VALUE_BYTES = 4
# Of COUNT values that the caller passes, what a rank sends to the next one, as a part of them.
SENT = {
    "all_reduce": ("AllReduce", 2 * (RANKS - 1) / RANKS),
    "reduce_scatter": ("ReduceScatter", RANKS - 1),
    "all_gather": ("AllGather", RANKS - 1),
    "neighbours": ("Send", 1),
}
EXPECTED = [
    (op, rank, (rank + 1) % RANKS, ROUNDS, int(MIX[name] * VALUE_BYTES * part))
    for name, (op, part) in SENT.items()
    for rank in range(RANKS)
]
FOUND = """
    SELECT op, rank, peer, count(*), min(bytes), max(bytes), min(expected_bytes),
        max(expected_bytes), count(*) FILTER (ended_ns IS NULL)
    FROM {} GROUP BY ALL ORDER BY ALL
"""


def diagnosed(folder: Path, into: Path) -> tuple[dict[str, Any], Incident]:
    """What `oncall diagnose` says of a folder of shards, and the evidence it saw."""
    command = [sys.executable, "-m", "oncall.cli.main", "diagnose", str(folder)]
    command += ["--format", "json", "--save", str(into), "--param", "hang.hang_after=5s"]
    said = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    assert said.returncode in (0, 1)
    return json.loads(said.stdout), Incident.open(into)


@pytest.mark.parametrize("by", ["the console", "the node"])
def test_every_operation_is_found_with_its_peer_and_its_volume(
    job: Guest, by: str, tmp_path: Path
) -> None:
    """By the console from every epoch; and by each node as it came, which knows its peers by their
    queue pairs only."""
    assert job.results["collectives"]["ended"] == [0] * RANKS  # every value was right
    table, other = "segmented_traffic", "op_traffic"
    if by == "the node":
        table, other = "traffic", "epochs"
    _, incident = diagnosed(job.control / "collectives", tmp_path / "saved.oncall")
    with incident:
        incident.con.execute(f"DELETE FROM {other}")
        incident.require([table])
        found = incident.con.execute(FOUND.format(table)).fetchall()
    assert found == sorted(
        (op, rank, peer, count, bytes_, bytes_, bytes_, bytes_, 0)
        for op, rank, peer, count, bytes_ in EXPECTED
    )


def test_epochs_are_those_of_the_wire(job: Guest, tmp_path: Path) -> None:
    """Every byte, and when: against packets stamped as they left (docs/guide/traffic.md)."""
    folder = job.control / "collectives"
    _, incident = diagnosed(folder, tmp_path / "saved.oncall")
    with incident:
        off = [
            distance(sent, packets_to(folder / f"wire{rank}.npz", gid, qpn))
            for rank, gid, qpn, sent in sent_by_queue_pair(incident)
        ]
    assert len(off) == 3 * RANKS  # two channels of the ring, and what is sent to the next rank
    assert np.median(off) < 0.05  # processors are emulated: a thread is kept waiting for long


Sent: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64]]  # when, and how many bytes: (n,)


def sent_by_queue_pair(incident: Incident) -> Iterator[tuple[int, str, int, Sent]]:
    """Rank, and the peer's GID and queue pair, with the ends of epochs and their bytes."""
    found = incident.con.execute(
        """SELECT rank, peer_gid, peer_qpn, list(start_ns + epoch_ns ORDER BY start_ns),
               list(e.bytes ORDER BY start_ns)
           FROM epochs e JOIN (SELECT DISTINCT node, nic, qpn, peer_gid, peer_qpn FROM qps)
           USING (node, nic, qpn) GROUP BY ALL HAVING sum(e.bytes) > 100000 ORDER BY ALL"""
    ).fetchall()  # others only carry credits
    for rank, gid, qpn, at_ns, sent in found:
        yield rank, gid, qpn, (np.array(at_ns), np.array(sent))


def packets_to(wire: Path, gid: str, qpn: int) -> Sent:
    """Packets with payload to a queue pair; what was sent again is not counted."""
    packets = np.load(wire)
    address = int(ipaddress.ip_address(gid)) & 0xFFFFFFFF
    own = (packets["receiver"] == address) & (packets["qpn"] == qpn) & (packets["bytes"] > 0)
    _, first = np.unique(packets["psn"][own], return_index=True)
    first.sort()
    return packets["at_ns"][own][first], packets["bytes"][own][first]


def distance(reported: Sent, truth: Sent) -> float:
    """How far the share that was sent is from the truth, on average over packets."""
    so_far = np.cumsum(truth[1])
    assert so_far[-1] == reported[1].sum()
    share = np.interp(truth[0], reported[0], np.cumsum(reported[1]), left=0)
    return float(np.abs(share - so_far).mean() / so_far[-1])


@pytest.mark.parametrize(
    ("case", "verdicts", "node"),
    [
        ("stalled_rank", {"COMP_FAIL_STOP", "H3"}, "node2"),
        ("slow_network", {"COMM_FAIL_SLOW", "W5"}, "node1"),
        ("slow_receiver", {"W6"}, "node2"),
    ],
)
def test_the_diagnosis_names_who(
    job: Guest, case: str, verdicts: set[str], node: str, tmp_path: Path
) -> None:
    said, incident = diagnosed(job.control / case, tmp_path / "saved.oncall")
    incident.close()
    found = [
        (finding["verdict"], {blamed.get("node") for blamed in finding["blame"]})
        for finding in said["findings"]
    ]
    # On emulated processors a slow network looks like a slow computation of its host, too.
    assert found[0][1] == {node}
    assert any(verdict in verdicts and nodes == {node} for verdict, nodes in found)


def test_a_receiver_that_is_slow_to_consume_is_seen_in_its_steps(job: Guest) -> None:
    """What came waits for the GPU of rank 2, which a fault makes slow; elsewhere for the wire."""
    folders = [job.control / "slow_receiver" / f"node{rank}" for rank in range(RANKS)]
    with open_shards([shard for folder in folders for shard in sealed_shards(folder)]) as shards:
        waited = dict(
            shards.con.execute(
                "SELECT rank, sum(gpu_wait_ns) FROM transfers WHERE direction = 'recv' GROUP BY ALL"
            ).fetchall()
        )
    assert min(waited[2] / waited[rank] for rank in (0, 1, 3)) > 3
