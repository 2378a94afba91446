"""Tasks of all ranks on one clock, with each rank's place in the job."""

from __future__ import annotations

from tests.sql import found

from oncall.evidence.incident import Incident


def test_reported_tasks_come_with_node_place_and_common_time() -> None:
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
        rows = found(
            incident,
            "stage_work",
            "rank, node, replica, tensor_rank, started_ns, ended_ns, clock_error_ns",
        )
    assert rows == [(0, "a", 0, 0, 1_000, 1_100, 3), (7, "b", 1, 1, 2_000, None, 7)]


def test_the_order_of_ranks_places_them_where_nothing_else_does() -> None:
    with Incident.empty() as incident:
        incident.append("jobs", {"job": "j", "world_size": [16], "tp": 2, "pp": 2})
        incident.append("ranks", {"job": "j", "rank": list(range(16)), "node": "a"})
        incident.require(["stage_layout"])
        rows = incident.con.execute(
            "SELECT stage, replica, tensor_rank FROM stage_layout ORDER BY rank"
        ).fetchall()
    assert rows == [(s, d, t) for s in range(2) for d in range(4) for t in range(2)]


def test_pipelines_keep_their_order_where_ranks_are_laid_out_stage_by_stage() -> None:
    with Incident.empty() as incident:
        incident.append("jobs", {"job": "j", "world_size": [8], "tp": 2, "pp": 2})
        incident.append("ranks", {"job": "j", "rank": list(range(8)), "node": "a"})
        stages = [0, 0, 1, 1, 0, 0, 1, 1]  # tp-pp-dp
        incident.append(
            "stage_tasks",
            {"job": "j", "rank": list(range(8)), "iteration": 0, "task": "forward",
             "stage": stages, "started_ns": 1_000, "ended_ns": 1_100},
        )  # fmt: skip
        incident.require(["stage_layout"])
        rows = incident.con.execute(
            "SELECT stage, replica FROM stage_layout ORDER BY rank"
        ).fetchall()
    assert rows == [(0, 0), (0, 0), (1, 0), (1, 0), (0, 1), (0, 1), (1, 1), (1, 1)]


def test_a_place_in_a_named_group_goes_before_the_order_of_ranks() -> None:
    with Incident.empty() as incident:
        incident.append("jobs", {"job": "j", "world_size": [4], "tp": 1, "pp": 2})
        incident.append("ranks", {"job": "j", "rank": list(range(4)), "node": "a"})
        incident.append(
            "comms",
            {
                "job": "j",
                "comm": [1, 1, 2, 2],
                "rank": [0, 1, 2, 3],
                "comm_rank": [1, 0, 0, 1],
                "size": 2,
                "role": "PIPELINE_MODEL_PARALLEL_GROUP",
            },
        )
        incident.require(["stage_layout"])
        rows = incident.con.execute("SELECT stage FROM stage_layout ORDER BY rank").fetchall()
    assert rows == [(1,), (0,), (0,), (1,)]


def test_iterations_of_nodes_that_began_to_count_apart_are_one() -> None:
    with Incident.empty() as incident:
        incident.append("ranks", {"job": "j", "rank": [0, 1], "node": ["a", "b"]})
        tasks = {"job": "j", "task": "forward", "stage": 0, "whole": True, "source": "calls"}
        for rank, first in ((0, 0), (1, 2)):
            start = [100 * k for k in range(first, 6)]
            times = {"started_ns": start, "ended_ns": [at + 60 + rank for at in start]}
            incident.append(
                "stage_tasks", tasks | times | {"rank": rank, "iteration": list(range(6 - first))}
            )
        rows = found(incident, "stage_work", "iteration, started_ns")
    assert all(started_ns == 100 * iteration for iteration, started_ns in rows)


def test_a_node_that_counts_from_a_later_iteration_is_counted_like_the_others() -> None:
    """Node b saw its first whole iteration two later."""
    began = [1_000 * number for number in range(4)]
    with Incident.empty() as incident:
        incident.append("jobs", {"job": "j", "world_size": [2], "tp": 1, "pp": 2})
        incident.append("ranks", {"job": "j", "rank": [0, 1], "node": ["a", "b"]})
        incident.append(
            "stage_tasks",
            {"job": "j", "rank": [0] * 4 + [1] * 2, "iteration": [0, 1, 2, 3, 0, 1],
             "task": "forward", "stage": [0] * 4 + [1] * 2, "whole": True, "source": "calls",
             "started_ns": began + began[2:], "ended_ns": [at + 900 for at in began + began[2:]]},
        )  # fmt: skip
        rows = found(incident, "stage_work", "rank, iteration")
    assert rows == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 2), (1, 3)]
