"""What hosts' NICs tell of a late collective is one root beside the other rulebooks, or none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from oncall.evidence.incident import Incident
from oncall.rules.language.load import load_file, shipped_folder
from oncall.use_case.diagnose import diagnose

MS = 1_000_000
S = 1_000 * MS
COMM = 7
BOOKS = ("congestion", "network", "latency")


@pytest.fixture
def late() -> Iterator[Incident]:
    """Rank 0 of host a sends to rank 1 of b at one minute; its second step takes 15 ms, not 5."""
    with Incident.empty() as incident:
        own = {"job": "j", "rank": [0, 1]}
        incident.append("ranks", own | {"node": ["a", "b"], "nic": "n0", "gpu": 0})
        comm = np.full(2, COMM, np.uint64)
        incident.append("comms", own | {"comm": comm, "comm_rank": [0, 1], "size": 2})
        took = np.array([5, 15, 5]) * MS
        ended = 60 * S + np.cumsum(took)
        steps = {"src": 0, "dst": 1, "step": [1, 2, 3], "bytes": 1000, "expected_ns": 5 * MS}
        named = {"job": "j", "comm": np.full(3, COMM, np.uint64), "seq": 0, "flow": 1}
        incident.append(
            "flow_steps", named | steps | {"started_ns": ended - took, "ended_ns": ended}
        )
        yield incident


def read(incident: Incident, node: str, **per_s: int) -> None:
    """Two minutes of readings, 4 a second, of counters that grow by so much a second."""
    at_ns = np.arange(0, 120 * S, S // 4)
    grown = {name: at_ns * rate // S for name, rate in per_s.items()}
    named = {"node": node, "nic": "n0", "port": 1, "rate_bytes_per_s": 50_000_000_000}
    incident.append("nics", named | {"at_ns": at_ns} | grown)


def found(incident: Incident) -> dict[str, str | None]:
    """Each finding, and by which it is explained."""
    books = [load_file(shipped_folder() / f"{name}.yaml") for name in BOOKS]
    findings = diagnose(incident, books).findings
    name = {f.id: f"{f.rulebook} {f.verdict}" for f in findings}
    return {name[f.id]: name[f.explained_by] if f.explained_by else None for f in findings}


def test_an_adapter_that_holds_the_network_off_is_the_root(late: Incident) -> None:
    moved: dict[str, Any] = {"tx_bytes": 10**9, "rx_bytes": 10**9}
    read(late, "a", **moved, pfc_rx_pause=500, pfc_rx_pause_ns=50 * MS, pfc_tx_pause_ns=0)
    read(late, "b", **moved, pfc_tx_pause=900, pfc_tx_pause_ns=100 * MS)
    late.append("ranks", {"job": "j", "rank": [2], "node": "c", "nic": "n0", "gpu": 0})
    read(late, "c", **moved, pfc_tx_pause=0, pfc_tx_pause_ns=0)
    shown = found(late)
    roots = [finding for finding, root in shown.items() if root is None]
    assert roots == ["network NIC"]
    assert shown["congestion SLOW_RECEIVER"] == "network NIC"


def test_flows_that_share_the_link_are_shown_with_the_port_that_was_paused(late: Incident) -> None:
    read(late, "a", tx_bytes=1, rx_bytes=1, pfc_rx_pause=1000, pfc_rx_pause_ns=20 * MS)
    read(late, "b", tx_bytes=1, rx_bytes=1, pfc_tx_pause=0, pfc_tx_pause_ns=0)
    sent = {"src_host": ["c"], "dst_host": ["b"], "is_collective": [False], "bytes": [10**9]}
    when = {"started_ns": [60 * S + 6 * MS], "ended_ns": [60 * S + 18 * MS]}
    late.append("flows", {"flow": [9], "name": ["c->b"]} | sent | when)
    measured = found(late)
    assert measured["congestion PAUSED_UPSTREAM"] is None
    assert measured["congestion CONTENTION"] == "congestion PAUSED_UPSTREAM"


def test_silent_nics_leave_the_sender_and_nothing_beside(late: Incident) -> None:
    for node in ("a", "b"):
        read(late, node, tx_bytes=1, rx_bytes=1, pfc_rx_pause=0, pfc_tx_pause=0)
    shown = found(late)
    assert [finding for finding, root in shown.items() if root is None] == [
        "congestion NOT_HELD_UP"
    ]
