"""Flows that leave one host together: named where its link was full, and only then."""

from __future__ import annotations

import pytest

import oncall.analysis
from oncall.evidence.incident import Incident

assert oncall.analysis  # imported for the relations that it registers
MS = 1_000_000


def late_step(other_packets: int, took_ms: int = 10) -> Incident:
    """A step of 5 ms from host a took longer; leaf A saw it and another flow of host a."""
    incident = Incident.empty()
    incident.append(
        "flow_steps",
        {
            "job": ["j"],
            "comm": [1],
            "seq": [0],
            "flow": [1],
            "src": [0],
            "dst": [1],
            "step": [1],
            "bytes": [60_000_000],
            "started_ns": [0],
            "ended_ns": [took_ms * MS],
            "expected_ns": [5 * MS],
        },
    )
    incident.append("ranks", {"job": ["j", "j"], "rank": [0, 1], "node": ["a", "b"]})
    incident.append("links", {"a": ["a", "b"], "a_port": 1, "b": ["A", "A"], "b_port": [1, 2]})
    incident.append("flows", {"flow": [1, 2], "src_host": ["a", "a"], "dst_host": ["b", "c"]})
    incident.append(
        "switch_flows",
        {
            "switch": ["A", "A"],
            "port": [2, 3],
            "at_ns": [5 * MS, 5 * MS],
            "epoch_ns": 5 * MS,
            "flow": [1, 2],
            "packets": [1_000, other_packets],
            "queue_depth": [0.0, 0.0],
        },
    )
    incident.provide(["sender_links", "contributors"])
    return incident


def test_what_left_beside_the_step_is_why_it_took_longer() -> None:
    with late_step(other_packets=1_000) as incident:
        rows = incident.con.execute(
            "SELECT switch, port, flow, packets, own FROM sender_links ORDER BY flow"
        ).fetchall()
        named = incident.con.execute("SELECT flow, meets FROM contributors").fetchall()
    assert rows == [("a", 1, 1, 1_000.0, True), ("a", 1, 2, 1_000.0, False)]
    assert named == [(2, True)]


@pytest.mark.parametrize("packets", [100, 500])
def test_a_link_with_room_left_is_not_why(packets: int) -> None:
    with late_step(other_packets=packets) as incident:
        assert incident.rows("sender_links") == 0
