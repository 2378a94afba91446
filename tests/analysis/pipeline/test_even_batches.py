"""What an iteration would take with even micro-batches, and what sequences and garbage cost."""

from __future__ import annotations

import numpy as np
import pytest

from oncall.analysis.pipeline.even_batches import batch_work
from oncall.evidence.incident import Incident
from oncall_lab.pipeline import simulate_pipeline
from oncall_lab.pipeline.fault import PipelineFault
from oncall_lab.pipeline.scenario import PipelineScenario


def costs(incident: Incident) -> dict[str, float]:
    """By kind of imbalance, the share of the iteration it costs."""
    incident.require(["stage_imbalance"])
    rows = incident.con.execute("SELECT kind, cost_ns / iteration_ns FROM stage_imbalance")
    return dict(rows.fetchall())


def job(**values: object) -> Incident:
    columns = {"recorder": "tasks", "tp": 1, "pp": 2, "dp": 4, "iterations": 10, "layers": 2}
    incident, _ = simulate_pipeline(PipelineScenario(**(columns | values)))  # type: ignore[arg-type]
    return incident


def baseline(incident: Incident) -> float:
    incident.require(["training_iterations"])
    rows = incident.con.execute("SELECT median(duration_ns) FROM training_iterations").fetchall()
    return float(rows[0][0])


def test_long_sequences_cost_what_the_longest_replica_is_behind_the_mean() -> None:
    with job(long_sequences=0.4) as uneven, job() as even:
        (share,) = costs(uneven).values()
        assert not costs(even)
        baseline_ns = [baseline(one) for one in (uneven, even)]
        # What is lost against the even job is the longer mean besides.
        assert 0.1 < share < 1 - baseline_ns[1] / baseline_ns[0]


def test_garbage_costs_the_longest_collection_of_each_iteration() -> None:
    values = {"garbage_every": 4, "garbage_ns": 400_000_000}
    with job(**values, garbage_together=False) as in_turn, job(**values) as together:
        # In turn somebody collects in every iteration; together, in every fourth.
        assert costs(in_turn)["garbage collection"] > 3 * costs(together)["garbage collection"]


def test_a_slow_machine_is_no_imbalance_of_batches() -> None:
    with job(faults=(PipelineFault("slow", 3, 0, factor=2.0),)) as slow:
        slow.require(["even_batches"])
        rows = slow.con.execute("SELECT max(actual_ns / even_ns) FROM even_batches").fetchall()
        assert rows[0][0] == pytest.approx(1, abs=0.05)


def test_batch_work_is_over_the_mean_of_its_iteration() -> None:
    nan = np.nan
    ratio = np.array([2.0, 2.2, 1.0, 1.0, nan, 1.0, 9.0, 0.0, 0.0])
    batch = np.array([0, 0, 1, 1, 2, 3, 3, 4, 4])
    iteration = np.array([0, 0, 0, 0, 0, 1, 1, 2, 2])
    work = batch_work(ratio, batch, iteration)
    # Of two stages the lower one counts: 9 times is one slow machine, no long sequence.
    assert work == pytest.approx([4 / 3, 4 / 3, 2 / 3, 2 / 3, 1, 1, 1, 1, 1])
