"""Probes summed up: one bad node among good ones, a bad link, bad hosts, and names of strangers."""

from __future__ import annotations

import json
from itertools import permutations
from typing import Any

import pytest

from oncall.evidence.incident import Incident
from oncall.fleet.outcome import Outcome
from oncall.fleet.probe import Probed
from oncall.render.text.probe import to_json, to_text
from oncall.views.probe import summarise

NODES = [f"gpu-node-{number:04}" for number in range(4)]
BAD = NODES[2]
US = 1_000


def measure(incident: Incident, kind: str, rtt_ns: Any, lost: Any = lambda *_: False) -> None:
    """Five pings of every pair; `rtt_ns` and `lost` tell of (node, target, number)."""
    rows = [(*pair, number) for pair in permutations(NODES, 2) for number in range(5)]
    gone = [lost(*row) for row in rows]
    incident.append(
        "pings",
        {
            "node": [node for node, _, _ in rows],
            "target_node": [target for _, target, _ in rows],
            "nic": "mlx5_10",
            "target_nic": "mlx5_10",
            "at_ns": list(range(len(rows))),
            "kind": kind,
            "lost": gone,
            "rtt_ns": [
                None if is_gone else rtt_ns(*row) for row, is_gone in zip(rows, gone, strict=True)
            ],
            "clock": ["kernel" if not is_gone else None for is_gone in gone],
        },
    )


def text_of(incident: Incident) -> str:
    text = to_text(Probed(incident, {}), summarise(incident.con))
    assert max(map(len, text.splitlines())) <= 80
    return text


def test_a_slow_node_stands_out_though_all_have_it_as_a_target(incident: Incident) -> None:
    measure(incident, "network", lambda *row: (60 if BAD in row else 15) * US + row[2])
    summary = summarise(incident.con)
    worst = summary.nodes[0]
    assert (worst.node, worst.network_ratio) == (BAD, pytest.approx(4, rel=0.01))
    assert all(node.network_ratio == pytest.approx(1, rel=0.01) for node in summary.nodes[1:])
    assert all(BAD in (pair.node, pair.target_node) for pair in summary.pairs[:6])
    assert BAD in text_of(incident).splitlines()[3]


def test_latency_within_hosts_is_what_end_to_end_takes_beyond_the_network(
    incident: Incident,
) -> None:
    measure(incident, "network", lambda *_: 17 * US)
    measure(incident, "end_to_end", lambda node, *_: (45 if node == BAD else 30) * US)
    summary = summarise(incident.con)
    [bad] = [node for node in summary.nodes if node.node == BAD]
    assert bad.network_ratio == 1
    assert summary.nodes[0] == bad
    assert bad.internal_ns == pytest.approx((28 + 13) / 2 * US)  # as source, and as target
    assert {node.internal_ns for node in summary.nodes if node != bad} == {13 * US}
    assert "in hosts" in text_of(incident)


def test_nothing_measured_is_no_table_and_no_crash(incident: Incident) -> None:
    outcomes = {"gpu009": Outcome("gpu009", "timeout", "no answer within 20 s")}
    summary = summarise(incident.con)
    text = to_text(Probed(incident, outcomes), summary)
    assert text.startswith("0 nodes") and "gpu009 did not answer in time" in text
    assert json.loads(to_json(Probed(incident, outcomes), summary))["pairs"] == []


def test_what_a_node_says_cannot_steer_the_terminal(incident: Incident) -> None:
    probed = Probed(
        incident, {}, odd={"gpu001": ["\x1b[2Jgone"]}, without_rdma={"\x1b]0;x\7": ["a"]}
    )
    assert "\x1b" not in to_text(probed, summarise(incident.con))
