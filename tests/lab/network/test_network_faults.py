"""What each fault leaves in the network, and that the shipped rules find it there."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from typing import Any

import pytest

from oncall.core.errors import BadInput, UsageError
from oncall.evidence.incident import Incident
from oncall.lab import simulate_file
from oncall.rules.language.load import load_file, shipped_folder
from oncall.use_case.diagnose import diagnose
from oncall_lab.network import NetworkFault, NetworkScenario, simulate_network
from oncall_lab.network.plan import plan
from oncall_lab.network.play import Played, play
from oncall_lab.simulation import load, simulate
from oncall_lab.truth import Truth

STEP = 20_000_000


def played(*faults: NetworkFault, **values: object) -> Played:
    scenario = NetworkScenario(step_bytes=STEP, faults=faults, **values)  # type: ignore[arg-type]
    return play(scenario, plan(scenario))


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("CONTENTION", {}),
        ("INCAST", {}),
        ("PFC_STORM", {}),
        ("PFC_BACKPRESSURE", {"fat_tree": 6, "members": 6, "congestion_control": False}),
        ("PFC_LOOP_DEADLOCK", {}),
        ("FORWARDING_LOOP", {}),
        ("LOAD_IMBALANCE", {}),
    ],
)
def test_the_shipped_rules_find_it(kind: str, values: dict[str, Any]) -> None:
    fault = NetworkFault(kind, 1_000_000, count=6 if kind == "PFC_BACKPRESSURE" else 0)
    incident, truth = first_that_delays(NetworkScenario(step_bytes=STEP, faults=(fault,), **values))
    books = [load_file(shipped_folder() / "congestion.yaml")]
    with incident:
        diagnosis = diagnose(incident, books)
    assert [f.verdict for f in diagnosis.findings if f.explained_by is None] == [kind]
    (found,) = truth.faults
    assert found.slowdown is not None and found.slowdown > 1.03


def first_that_delays(scenario: NetworkScenario) -> tuple[Incident, Truth]:
    for seed in range(2, 22):
        with contextlib.suppress(UsageError):
            return simulate_network(dataclasses.replace(scenario, seed=seed))
    raise AssertionError("no seed delays the collective")


def test_whoever_heeds_marks_causes_fewer_pauses() -> None:
    fault = NetworkFault("INCAST", count=6, bytes=STEP)
    pauses = [len(played(fault, congestion_control=heed).pauses) for heed in (True, False)]
    assert pauses[0] < pauses[1]


def test_a_scenario_file_of_a_network(tmp_path: Path) -> None:
    file = tmp_path / "storm.yaml"
    file.write_text(
        "fat_tree: 4\nmembers: 4\nstep_bytes: 5 MB\nnetwork: 200 Gbit/s\n"
        "faults: [{fault: PFC_STORM, at: 200 us, lasting: 1 ms}]\n"
    )
    incident, truth = simulate(load(file))
    with incident:
        assert incident.rows("switch_pauses") >= 2
    assert [fault.kind for fault in truth.faults] == ["PFC_STORM"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("fat_tree: 5", "`fat_tree: 5` is none of"),
        ("fat_tree: 4\nmembers: 40", "the hosts of the tree"),
        ("fat_tree: 4\nfaults: [{fault: SLOW}]", "`SLOW` is none of"),
        ("fat_tree: 4\nmembers: 6\nalgorithm: halving_doubling\nop: AllReduce", "a power of two"),
        ("fat_tree: 4\nalgorithm: halving_doubling", "does AllReduce"),
        ("fat_tree: 4\nxon_bytes: 1 MB", "`xon_bytes` lies between"),
    ],
)
def test_what_cannot_be_simulated_is_said(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(text)
    with pytest.raises(BadInput, match=said):
        load(file)


def test_a_fault_that_delays_nothing_is_no_truth() -> None:
    late = NetworkFault("CONTENTION", at_ns=10**10, count=1)
    with pytest.raises(UsageError, match="no fault delays the collective"):
        simulate_network(NetworkScenario(step_bytes=10**6, faults=(late,)))


def test_switch_reports_are_no_shards_of_nodes(tmp_path: Path) -> None:
    file = tmp_path / "network.yaml"
    file.write_text("fat_tree: 4\nstep_bytes: 1 MB\n")
    with pytest.raises(UsageError, match="has no nodes"):
        simulate_file(file, tmp_path / "out", seed=None, shards=True)
