"""Clocks: measured, or estimated from collectives that end together; planted offsets are found."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from oncall.analysis.tasks.clock_offsets import Thresholds, estimate
from oncall.evidence.incident import Incident
from oncall_lab.pipeline.scenario import PipelineScenario
from oncall_lab.pipeline.simulation import simulate_pipeline


@given(st.integers(2, 12), st.integers(0, 2**32 - 1), st.floats(1e3, 1e8))
def test_planted_offsets_are_found_within_the_stated_error(
    count: int, seed: int, jitter_ns: float
) -> None:
    rng = np.random.default_rng(seed)
    true = rng.uniform(-1e9, 1e9, count)
    pairs: list[tuple[int, int]] = []
    members = []
    for node in range(1, count):  # a tree, and some edges besides
        for other in {int(rng.integers(node)), int(rng.integers(node))}:
            apart = true[node] - true[other] + jitter_ns * rng.standard_normal(101)
            middle = float(np.median(apart))
            spread = float(np.median(np.abs(apart - middle))) / np.sqrt(101)
            members += [
                (f"n{other}", len(pairs), -middle / 2, spread),
                (f"n{node}", len(pairs), middle / 2, spread),
            ]
            pairs.append((other, node))
    found = estimate([f"n{node}" for node in range(count)], members, Thresholds())
    assert len(found) == count
    offset = {name: offset_ns for name, offset_ns, _ in found}
    error = {name: error_ns for name, _, error_ns in found}
    for one, other in pairs:
        seen = offset[f"n{other}"] - offset[f"n{one}"]
        assert abs(seen - true[other] + true[one]) <= error[f"n{one}"] + error[f"n{other}"]


def test_nodes_that_share_nothing_are_not_known() -> None:
    assert estimate(["a", "b"], [], Thresholds()) == []


def test_offsets_of_a_recording_without_measured_clocks() -> None:
    scenario = PipelineScenario(iterations=8, clock_offset_ns=50_000_000, clocks_measured=False)
    incident, _ = simulate_pipeline(scenario)
    measured, _ = simulate_pipeline(PipelineScenario(iterations=8, clock_offset_ns=50_000_000))
    with incident, measured:
        incident.require(["clock_offsets"])
        measured.require(["clock_offsets"])
        query = "SELECT node, offset_ns, error_ns, source FROM clock_offsets ORDER BY node"
        found = incident.con.execute(query).fetchall()
        true = measured.con.execute(query).fetchall()
    assert [row[3] for row in true] == ["measured"] * scenario.nodes
    assert [row[3] for row in found] == ["estimated"] * scenario.nodes
    for (_, first, first_error, _), (_, true_first, *_) in zip(found[:1], true[:1], strict=True):
        for (_, offset, error, _), (_, planted, _, _) in zip(found[1:], true[1:], strict=True):
            off = (offset - first) - (planted - true_first)
            assert abs(off) <= error + first_error
            assert error < 50_000_000


def test_one_node_needs_no_clock() -> None:
    with Incident.empty() as incident:
        incident.append("ranks", {"job": "j", "rank": [0, 1], "node": "a"})
        incident.require(["clock_offsets"])
        assert incident.con.execute("FROM clock_offsets").fetchall() == [
            ("j", "a", 0, 0, "same node")
        ]
