"""Pipelines that share experts or contexts are one group; others are by themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncall.analysis.pipeline.coupled_pipelines import meeting_groups
from oncall_lab.pipeline import PipelineFault, PipelineScenario, simulate_pipeline


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 5)), max_size=12))
def test_pipeline_groups_are_what_meetings_connect(pairs: list[tuple[int, int]]) -> None:
    pairs = [*pairs, *((pipeline, 6 + pipeline) for pipeline in range(8))]  # each meets itself
    sets = [{pipeline} for pipeline in range(8)]
    for pipeline, meeting in pairs:
        for other, same in pairs:
            if meeting == same and sets[pipeline] is not sets[other]:
                sets[pipeline] |= sets[other]
                for member in sets[other]:
                    sets[member] = sets[pipeline]
    found = meeting_groups(*(np.array(column) for column in zip(*pairs, strict=True)))
    assert found.tolist() == [min(members) for members in sets]


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ({"ep": 2}, [0, 0, 2, 2]),
        ({"ep": 2, "recorder": "tasks"}, [0, 0, 2, 2]),  # the configuration tells it
        ({"dp": 2, "cp": 2}, [0, 0, 2, 2]),
        ({"dp": 2, "cp": 2, "roles_recorded": False}, [None] * 4),  # contexts, or gradients?
        ({}, [0, 1, 2, 3]),
    ],
)
def test_who_meets_inside_tasks_is_reported_by_communicators_or_the_configuration(
    shape: dict[str, Any], expected: list[int | None]
) -> None:
    scenario = PipelineScenario(
        **{"pp": 2, "dp": 4, "layers": 4, "micro_batches": 4, "iterations": 4} | shape
    )
    incident, _ = simulate_pipeline(scenario)
    with incident:
        incident.provide(["coupled_pipelines"])
        rows = incident.con.execute(
            "SELECT replica, pipeline_group FROM coupled_pipelines ORDER BY 1"
        )
        found = rows.fetchall()
    assert [dict(found).get(replica) for replica in range(4)] == expected


def test_of_an_interleaved_schedule_the_slow_pair_is_reported_though_sends_overlap() -> None:
    """Nobody waits for Sends there: the longest Send of a stage and the longest Recv of the next
    one are of different pairs, and most transfers are over before they are asked for."""
    fault = PipelineFault("link", 5, 5, factor=100.0)
    scenario = PipelineScenario(
        schedule="interleaved", chunks=2, pp=3, dp=2, ep=2, layers=6, micro_batches=6,
        iterations=9, faults=(fault,),
    )  # fmt: skip
    incident, _ = simulate_pipeline(scenario)
    with incident:
        incident.provide(["slow_stages"])
        rows = incident.con.execute("SELECT DISTINCT rank, network FROM slow_stages").fetchall()
    assert rows == [(5, True)]
