"""Algorithm 2 on played jobs: the stage, its rank, what it explains; and whom not to blame."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.sql import found

from oncall.analysis.pipeline.stage_paths import beside_others
from oncall.evidence import Incident
from oncall_lab.pipeline import simulate_pipeline
from oncall_lab.pipeline.fault import PipelineFault
from oncall_lab.pipeline.scenario import PipelineScenario

MS = 1_000_000
Play = Callable[..., Incident]


def culprits(incident: Incident) -> list[tuple[Any, ...]]:
    columns = "iteration, replica, stage, micro_batch, task, rank, node, network"
    return found(incident, "slow_stages", columns)


def test_one_task_on_the_path_is_named_with_its_rank(played: Play) -> None:
    incident = played(delays={(5, 0, 2, 3, "backward"): 250 * MS}, slow_tensor_rank=1)
    assert culprits(incident) == [(5, 0, 2, 3, "backward", 5, "n2", False)]
    rows = incident.con.execute(
        "SELECT members, basis, round(explained, 1) FROM slow_stages"
    ).fetchall()
    assert rows == [(2, "its own past", 1.0)]


def test_a_delay_that_slack_absorbs_is_nobodys_fault(played: Play) -> None:
    assert culprits(played(delays={(5, 0, 0, 3, "forward"): 50 * MS})) == []


def test_a_slow_transfer_is_the_networks(played: Play) -> None:
    incident = played(links={(5, 0, 2, 3, "forward"): 300 * MS})
    assert culprits(incident) == [(5, 0, 2, 3, "forward", None, None, True)]
    assert incident.con.execute("SELECT from_stage FROM slow_stages").fetchall() == [(1,)]


def test_in_a_pipeline_that_ends_before_another_nobody_is_to_blame(played: Play) -> None:
    delays = {(5, 0, 2, 3, "forward"): 900 * MS, (5, 1, 1, 3, "forward"): 300 * MS}
    found = culprits(played(dp=2, delays=delays))
    assert {row[1:3] for row in found} == {(0, 2)}


def test_two_that_are_slow_alike_in_two_pipelines_are_both_named(played: Play) -> None:
    delays = {(5, 0, 2, 3, "forward"): 300 * MS, (5, 1, 1, 3, "forward"): 300 * MS}
    found = culprits(played(dp=2, delays=delays))
    assert {row[1:3] for row in found} == {(0, 2), (1, 1)}


@pytest.mark.parametrize("slow", ["forward", "backward"])
def test_slow_from_the_beginning_is_reported_by_the_other_pipelines(
    played: Play, slow: str
) -> None:
    delays = {(i, 1, 1, m, slow): 60 * MS for i in range(8) for m in range(8)}
    incident = played(dp=3, delays=delays)
    assert {row[1:3] + row[5:] for row in culprits(incident)} == {(1, 1, 8, "n1", False)}
    bases = incident.con.execute(
        "SELECT basis, count(DISTINCT iteration) FROM slow_stages GROUP BY basis"
    ).fetchall()
    assert bases == [("other pipelines", 6)]


def test_a_link_that_was_slow_from_the_beginning_is_reported_by_the_other_pipelines() -> None:
    link = PipelineFault("link", 7, 0, factor=100.0)
    scenario = PipelineScenario(tp=1, pp=2, dp=6, layers=2, iterations=8, recorder="tasks")
    incident, _ = simulate_pipeline(replace(scenario, faults=(link,)))
    with incident:
        incident.require(["slow_stages"])
        rows = incident.con.execute("SELECT DISTINCT rank, from_stage, network FROM slow_stages")
        assert rows.fetchall() == [(7, 1, True)]


def test_the_baseline_of_a_link_is_the_others_where_those_are_far_faster() -> None:
    nan = np.nan
    by_lane = np.array([[1.0, 5.0, nan], [1.5, 6.0, nan], [9.0, 5.0, 2.0]])
    baseline = beside_others(by_lane.ravel(), 3, 0.5).reshape(3, 3)
    assert baseline[2, 0] == 1.5
    unchanged = np.ones((3, 3), np.bool_)
    unchanged[2, 0] = False
    assert np.array_equal(baseline[unchanged], by_lane[unchanged], equal_nan=True)
    assert beside_others(np.array([4.0, 9.0]), 1, 0.5).tolist() == [4.0, 9.0]


@pytest.mark.parametrize(
    "healthy",
    [
        {"jitter": 0.05},
        {"dp": 4},
        {"forward": (100 * MS, 100 * MS, 100 * MS, 170 * MS), "dp": 2},
        {"lengths": {(5, 0, 3): 1.5}},
        {"lengths": {(i, i % 2, 3 * i % 8): 1.4 for i in range(8)}, "dp": 2},
    ],
    ids=["jitter", "pipelines", "uneven stages", "one long sequence", "long sequences"],
)
def test_what_is_so_by_design_blames_nobody(played: Play, healthy: dict[str, Any]) -> None:
    assert culprits(played(**healthy)) == []
