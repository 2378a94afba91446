"""The tasks of pipelines, each tensor-parallel group as one."""

from __future__ import annotations

import pytest
from tests.sql import found

from oncall.evidence import Incident


@pytest.mark.parametrize(
    ("whole", "vertex"),
    [
        ([True, True], (2, 1_400)),
        ([True, False], (1, 1_100)),  # the other member of its group tells without it
        ([False, False], (2, 1_400)),
    ],
)
def test_a_member_with_a_hole_counts_where_no_other_was_recorded_whole(
    whole: list[bool], vertex: tuple[int, int]
) -> None:
    with Incident.empty() as incident:
        incident.append("jobs", {"job": "j", "world_size": [2], "tp": 2, "pp": 1})
        incident.append("ranks", {"job": "j", "rank": [0, 1], "node": "a"})
        incident.append(
            "stage_tasks",
            {"job": "j", "rank": [0, 1], "iteration": 0, "task": "forward", "stage": 0,
             "micro_batch": 0, "whole": whole, "source": "calls",
             "started_ns": 1_000, "ended_ns": [1_100, 1_400]},
        )  # fmt: skip
        rows = found(incident, "stage_vertices", "ranks, ended_ns")
    assert rows == [vertex]
