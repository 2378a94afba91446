"""Flows that leave one host together: named where its link was full, and only then."""

from __future__ import annotations

import pytest

from oncall.evidence.incident import Incident

MS = 1_000_000


Rows = list[tuple[int, int, int]]  # flow, epoch of 5 ms, packets


def late_step(packets: Rows) -> Incident:
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
            "ended_ns": [10 * MS],
            "expected_ns": [5 * MS],
        },
    )
    incident.append("ranks", {"job": ["j", "j"], "rank": [0, 1], "node": ["a", "b"]})
    links = {"a": ["a", "b"], "a_port": 1, "b": ["A", "A"], "b_port": [1, 2]}
    incident.append("links", {**links, "rate_bytes_per_s": 12_000_000_000})
    incident.append("flows", {"flow": [1, 2], "src_host": ["a", "a"], "dst_host": ["b", "c"]})
    incident.append(
        "switch_flows",
        {
            "switch": "A",
            "port": [flow + 1 for flow, _, _ in packets],
            "at_ns": [epoch * 5 * MS for _, epoch, _ in packets],
            "epoch_ns": 5 * MS,
            "flow": [flow for flow, _, _ in packets],
            "packets": [count for _, _, count in packets],
            "queue_depth": 0.0,
        },
    )
    incident.provide(["step_flows", "contributors"])
    return incident


def on_link(incident: Incident) -> list[int]:
    rows = incident.con.execute("SELECT flow FROM step_flows WHERE on_sender_link ORDER BY flow")
    return [flow for (flow,) in rows.fetchall()]


def test_what_left_beside_the_step_is_why_it_took_longer() -> None:
    with late_step([(1, 1, 1_000), (2, 1, 1_000)]) as incident:
        rows = incident.con.execute(
            "SELECT switch, port, flow, packets, own FROM step_flows "
            "WHERE on_sender_link ORDER BY flow"
        ).fetchall()
        named = incident.con.execute("SELECT flow, meets FROM contributors").fetchall()
    assert rows == [("a", 1, 1, 1_000.0, True), ("a", 1, 2, 1_000.0, False)]
    assert named == [(2, True)]


@pytest.mark.parametrize("packets", [100, 500])
def test_a_link_with_room_left_is_not_why(packets: int) -> None:
    with late_step([(1, 1, 1_000), (2, 1, packets)]) as incident:
        assert on_link(incident) == []
