"""`oncall diagnose` on each of the twelve failures of Pulse's Table 3, in small."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from oncall.cli.commands import app
from oncall_lab.traffic import TrafficFault, TrafficScenario, simulate_traffic

# Two GPUs a node instead of eight.
SMALL: dict[str, Any] = {"tp": 2, "iterations": 9, "micro_batches": 2, "dp_bytes": 256 * 2**20}
VERDICTS = {
    "comm fail-slow": "COMM_FAIL_SLOW",
    "comm fail-stop": "COMM_FAIL_STOP",
    "comp fail-slow": "COMP_FAIL_SLOW",
    "comp fail-stop": "COMP_FAIL_STOP",
    "cpu bottleneck": "CPU_BOTTLENECK",
}


def diagnosed(scenario: TrafficScenario, folder: Path) -> tuple[int, list[dict[str, Any]], str]:
    """Exit code, findings, and the machine at fault."""
    incident, truth = simulate_traffic(scenario)
    with incident:
        incident.save(folder / "incident.oncall")
    done = CliRunner().invoke(
        app, ["diagnose", str(folder / "incident.oncall"), "--format", "json"]
    )
    findings = json.loads(done.stdout)["findings"]
    (node,) = truth.faults[0].nodes or ("",)
    return done.exit_code, findings, node


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "workload", "rank"),
    [
        ("congestion", "gpt2", 9),
        ("cpu_contention", "gpt2", 8),
        ("nic_down", "gpt2", 9),
        ("pcie_contention", "mixtral", 5),
        ("gpu_throttling", "gpt2", 3),
        ("gpu_error", "gpt2", 9),
        ("cuda_error", "mixtral", 5),
        ("cpu_throttling", "mixtral", 4),
        ("pcie_downgrade", "gpt2", 6),
        ("cross_numa", "gpt2", 12),
        ("misaligned_memory", "gpt2", 1),
    ],
)
def test_the_machine_and_the_kind_of_failure_are_reported(
    kind: str, workload: str, rank: int, tmp_path: Path
) -> None:
    fault = TrafficFault(kind, rank, iteration=2)
    code, findings, node = diagnosed(
        TrafficScenario(workload=workload, seed=rank, faults=(fault,), **SMALL), tmp_path
    )

    assert code == 1
    reported = [f for f in findings if f["verdict"] == VERDICTS[fault.pulse_class]]
    assert reported and all(f["story"][-1]["say"] and f["next"] for f in reported)
    assert {blame.get("node") for f in findings for blame in f["blame"]} == {node}


@pytest.mark.slow
def test_uneven_experts_are_reported_and_no_machine_is_blamed(tmp_path: Path) -> None:
    fault = TrafficFault("moe_imbalance", 0, iteration=2)
    _, findings, _ = diagnosed(
        TrafficScenario(workload="mixtral", faults=(fault,), **SMALL), tmp_path
    )

    assert [f["verdict"] for f in findings] == ["MOE_IMBALANCE"]
    assert findings[0]["blame"] == [] and "cases it is on gpu00" in findings[0]["story"][-1]["say"]
