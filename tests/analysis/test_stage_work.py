"""Tasks of all ranks on one clock, with each rank's place in the job."""

from __future__ import annotations

import oncall.analysis
from oncall.evidence.incident import Incident

assert oncall.analysis


def test_told_tasks_come_with_node_place_and_common_time() -> None:
    with Incident.empty() as incident:
        incident.append("jobs", {"job": "j", "world_size": 8, "tp": 2, "pp": 2, "dp": 2})
        incident.append("ranks", {"job": "j", "rank": [0, 7], "node": ["a", "b"]})
        incident.append(
            "clocks", {"node": ["a", "b"], "at_ns": 0, "offset_ns": [0, 500], "error_ns": [3, 7]}
        )
        incident.append(
            "stage_tasks",
            {
                "job": "j",
                "rank": [0, 7],
                "iteration": 0,
                "task": "forward",
                "stage": [0, 1],
                "started_ns": [1_000, 2_500],
                "ended_ns": [1_100, None],
            },
        )
        incident.require(["stage_work"])
        rows = incident.con.execute(
            "SELECT rank, node, replica, tensor_rank, started_ns, ended_ns, clock_error_ns "
            "FROM stage_work ORDER BY rank"
        ).fetchall()
    assert rows == [(0, "a", 0, 0, 1_000, 1_100, 3), (7, "b", 1, 1, 2_000, None, 7)]
