"""Calls as tasks: against what simulated trainers say of their tasks, and on a real recording."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from oncall.core.training import parse_settings
from oncall.evidence.incident import Incident
from oncall.evidence.job_configuration import apply_training
from oncall.importers import detect
from oncall_lab import TrainingScenario, simulate
from oncall_lab.drawn.pipeline import experiment
from oncall_lab.pipeline.fault import PipelineFault
from oncall_lab.pipeline.scenario import PipelineScenario
from oncall_lab.pipeline.simulation import simulate_pipeline
from oncall_lab.training.fault import TrainingFault

MEGATRACE = Path(__file__).parents[3].parent / "shared" / "data" / "megatrace"
MEGATRACE /= "log_rank2_slow.tar.xz"
SHORT = PipelineScenario(iterations=4, dp=1, layers=4, clock_offset_ns=0, clock_error_ns=0)

Key = tuple[int, int, str, int, int, int]  # rank, iteration, task, stage, chunk, micro-batch
_KEYS = "rank, iteration, task, stage, chunk, micro_batch"


def tasks(incident: Incident, table: str, columns: str = "started_ns, ended_ns") -> dict[Key, Any]:
    rows = incident.con.execute(
        f"SELECT {_KEYS}, {columns} FROM {table} WHERE task IN ('forward', 'backward')"
    ).fetchall()
    return {row[:6]: row[6:] for row in rows}


@cache
def labelled(scenario: PipelineScenario, columns: str = "started_ns, ended_ns") -> dict[Key, Any]:
    incident, _ = simulate_pipeline(scenario)
    with incident:
        incident.require(["labelled_tasks"])
        return tasks(incident, "labelled_tasks", columns)


def recorded_tasks(scenario: PipelineScenario) -> dict[Key, Any]:
    return _recorded_tasks(replace(scenario, recorder="tasks", holes=0.0, starts_in=0.0))


@cache
def _recorded_tasks(scenario: PipelineScenario) -> dict[Key, Any]:
    incident, _ = simulate_pipeline(scenario)
    with incident:
        return tasks(incident, "stage_tasks")


NOT_STATED: dict[str, Any] = {"roles_recorded": False, "configuration_stated": False}
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "1F1B": {},
    "GPipe": {"schedule": "GPipe"},
    "interleaved": {"schedule": "interleaved", "chunks": 2, "tp": 1, "layers": 8},
    "one stage": {"pp": 1},
    "expert parallel, a host far ahead": {"dp": 2, "ep": 2, "host_ahead": True},
    "no tensor parallelism, sends that do not wait": {"tp": 1, "overlap_p2p": True},
    "calls alone, nothing stated": {"recorder": "calls", **NOT_STATED},
    "interleaved, nothing stated": {
        "schedule": "interleaved",
        "chunks": 2,
        "layers": 8,
        **NOT_STATED,
    },
}
MORE: dict[str, dict[str, Any]] = {
    "two stages": {"pp": 2},
    "interleaved, as many micro-batches as stages": {
        "schedule": "interleaved",
        "chunks": 2,
        "layers": 8,
        "micro_batches": 4,
    },
    "interleaved, sixteen stages": {
        "schedule": "interleaved",
        "chunks": 2,
        "pp": 16,
        "layers": 32,
        "micro_batches": 32,
        "evaluate_every": 2,
    },
    "fewer micro-batches than stages": {"micro_batches": 2},
    "sequence parallel": {"sequence_parallel": True},
    "context parallel": {"cp": 2},
    "gradients reduced meanwhile": {"dp": 2, "overlap_gradients": True},
    "evaluations and checkpoints": {"evaluate_every": 2, "checkpoint_every": 3},
    "nothing stated": NOT_STATED,
    "GPipe, nothing stated": {"schedule": "GPipe", **NOT_STATED},
    "GPipe, calls alone": {"schedule": "GPipe", "recorder": "calls", **NOT_STATED},
    "interleaved, calls alone, evaluations": {
        "schedule": "interleaved",
        "chunks": 3,
        "layers": 12,
        "recorder": "calls",
        "evaluate_every": 2,
        **NOT_STATED,
    },
    "calls alone": {"recorder": "calls"},
}


@pytest.mark.parametrize(
    "change",
    [
        *(pytest.param(change, id=name) for name, change in CONFIGURATIONS.items()),
        *(pytest.param(change, id=name, marks=pytest.mark.slow) for name, change in MORE.items()),
    ],
)
def test_every_task_is_found_under_its_own_name(change: dict[str, Any]) -> None:
    scenario = replace(SHORT, **change)
    assert labelled(scenario).keys() == recorded_tasks(scenario).keys()


@pytest.mark.parametrize("change", [{}, {"schedule": "interleaved", "chunks": 2, "layers": 8}])
def test_tasks_begin_and_end_when_the_trainer_says(change: dict[str, Any]) -> None:
    """But for what the two tasks do between their calls, where no transfer parts them."""
    scenario = replace(SHORT, **change)
    true = recorded_tasks(scenario)
    for key, (started_ns, ended_ns) in labelled(scenario).items():
        took_ns = true[key][1] - true[key][0]
        parted = 0 < key[3] < scenario.pp - 1
        if started_ns is None:
            assert key[3:] == (0, 0, 0)  # nothing was seen before it
            continue
        assert abs(started_ns - true[key][0]) < (0.02 if parted else 0.8) * took_ns
        assert abs(ended_ns - true[key][1]) < (0.02 if parted else 0.4) * took_ns


def test_a_ramp_of_micro_batches_is_followed() -> None:
    scenario = replace(SHORT, iterations=6, micro_batches_from=4, ramp_every=2)
    true, found = recorded_tasks(scenario), labelled(scenario)
    # The first iteration of the last stage might be the end of a longer one.
    assert {key for key in true if key[1] > 0} == {key for key in found if key[1] > 0}


def test_holes_of_the_recorder_cost_what_was_lost_and_shift_nothing() -> None:
    scenario = replace(SHORT, iterations=8, dp=2, holes=0.02)
    true, found = recorded_tasks(scenario), labelled(scenario, "whole, started_ns")
    assert found.keys() <= true.keys()
    assert len(found) > 0.9 * len(true)
    assert not all(whole for whole, _ in found.values())


def test_a_recording_that_begins_in_the_middle_counts_from_its_first_whole_iteration() -> None:
    scenario = replace(SHORT, starts_in=0.4)
    true, found = recorded_tasks(scenario), labelled(scenario)
    shifted = {(rank, iteration + 1, *rest) for rank, iteration, *rest in found}
    assert shifted <= true.keys()
    assert {key for key in true if key[1] > 0} <= shifted
    assert min(key[1] for key in found) == -1


@pytest.mark.parametrize("task", ["forward", "backward"])
def test_the_task_that_hangs_is_begun_and_not_ended(task: str) -> None:
    fault = PipelineFault("hang", rank=2, iteration=2, task=task, micro_batch=3)
    found = labelled(replace(SHORT, faults=(fault,)), "started_ns, ended_ns, whole")
    # Only rank 2 is itself at work; its peers within the group began the task, too.
    begun, ended, whole = found[2, 2, task, 1, 0, 3]
    assert begun is not None
    assert ended is None
    assert not whole
    later = [key for key in found if key[0] == 2 and key[1] > 2]
    assert not later


@pytest.mark.parametrize("into_ns", [900_000_000, 1_200_000_000])
def test_a_task_that_never_ended_does_not_tell_how_many_calls_such_tasks_make(
    into_ns: int,
) -> None:
    """On the last stage no transfer parts a forward from its backward."""
    fault = TrainingFault(
        "H3", (5,), at_ns=8_000_000_000 + into_ns, role="tp", how="hardware", progress=0.2
    )
    job = TrainingScenario(seed=1, duration_ns=40_000_000_000, clock_offset_ns=0, faults=(fault,))
    scenario = replace(
        job,
        tp=2,
        pp=2,
        dp=2,
        gpus_per_node=4,
        micro_batches=2,
        tp_operations=2,
        forward_ns=103_000_000,
    )
    incident, _ = simulate(scenario)
    with incident:
        incident.require(["labelled_tasks"])
        took = incident.con.execute(
            """SELECT median(ended_ns - started_ns) FROM labelled_tasks
            WHERE task = 'forward' AND rank IN (4, 6) GROUP BY rank ORDER BY rank"""
        ).fetchall()
    (stopped,), (other,) = took
    assert 0.75 < stopped / other < 1.33  # one call more or less is half or twice


@pytest.mark.parametrize("rank", [2, 6])
@pytest.mark.parametrize("task", ["forward", "backward", "forward_send"])
def test_where_training_stops_nothing_ends_before_it_begins_nor_is_begun_unfed(
    task: str, rank: int
) -> None:
    if task == "forward_send" and rank == 6:
        task = "backward_send"
    fault = PipelineFault("hang", rank=rank, iteration=2, task=task, micro_batch=3)
    scenario = replace(SHORT, iterations=3, faults=(fault,))
    found, true = labelled(scenario), recorded_tasks(scenario)
    # What came while the rank still stands in the Send beside it can begin, and does not.
    unfed = [span for key, span in found.items() if key not in true]
    assert all(begun is not None and ended is None for begun, ended in unfed)
    # A backward that has not called anything yet is not distinguished from the forward before it.
    assert {key[3] for key in true.keys() - found.keys()} <= {3}
    assert all(None in span or span[0] <= span[1] for span in found.values())
    assert all(true[key][1] is not None for key in found.keys() & true.keys() if found[key][1])


def test_evaluations_at_the_end_of_an_interleaved_recording_are_no_iteration() -> None:
    change: dict[str, Any] = {"schedule": "interleaved", "chunks": 2, "evaluate_every": 3}
    scenario = replace(SHORT, iterations=3, layers=8, tp=1, **change)
    assert labelled(scenario).keys() == recorded_tasks(scenario).keys()


def test_the_order_within_a_group_call_makes_no_evaluation_of_a_torn_iteration() -> None:
    """The last stage sends a gradient and asks for the next input in one group call; ranks record
    the two either way round."""
    with simulate(TrainingScenario(duration_ns=90 * 10**9))[0] as incident:
        incident.require(["labelled_tasks"])
        found = dict(
            incident.con.execute(
                "SELECT task, count(*) FROM labelled_tasks GROUP BY ALL"
            ).fetchall()
        )
    assert found["forward"] > 1000 and "evaluation" not in found


def test_an_evaluation_at_the_end_of_a_recording_of_gpipe_is_no_iteration() -> None:
    """The last stage sees the same forwards as in training: the others tell it that there is no
    gradient to come."""
    scenario = replace(SHORT, iterations=2, schedule="GPipe", evaluate_every=2, **NOT_STATED)
    assert labelled(scenario).keys() == recorded_tasks(scenario).keys()


def test_a_schedule_that_is_reported_wrongly_is_not_believed() -> None:
    scenario = replace(SHORT, schedule="GPipe")
    incident, _ = simulate_pipeline(replace(scenario, configuration_stated=False))
    with incident:
        apply_training(incident, parse_settings("pp=4,schedule=1F1B,micro_batches=16"))
        incident.require(["labelled_tasks"])
        assert tasks(incident, "labelled_tasks").keys() == recorded_tasks(scenario).keys()


def test_pauses_of_different_length_part_no_iteration_where_only_calls_are_reported() -> None:
    change: dict[str, Any] = {"recorder": "calls", "checkpoint_every": 2, "checkpoint_ns": 10**10}
    scenario = replace(SHORT, **change)
    assert labelled(scenario).keys() == recorded_tasks(scenario).keys()


@pytest.mark.parametrize(("schedule", "chunks"), [("1F1B", 1), ("GPipe", 1), ("interleaved", 2)])
def test_where_no_call_lies_within_tasks_who_sends_tells_when_they_begin(
    schedule: str, chunks: int
) -> None:
    """Calls alone, no tensor parallelism, clocks of two nodes 20 ms apart."""
    scenario = replace(
        SHORT, tp=1, pp=4, dp=2, layers=8, gpus_per_node=4, clock_offset_ns=10_000_000,
        recorder="calls", schedule=schedule, chunks=chunks, **NOT_STATED,
    )  # fmt: skip
    found, true = labelled(scenario), recorded_tasks(scenario)
    lengths = [
        ((found[key][1] - found[key][0]), (true[key][1] - true[key][0]))
        for key in true
        if key in found and None not in found[key]
    ]
    assert len(lengths) > 0.98 * len(true)
    apart = sorted(abs(mine - its) / its for mine, its in lengths)
    assert apart[len(apart) // 2] < 0.05
    assert apart[int(0.9 * len(apart))] < 0.1


def test_how_late_a_rank_comes_is_reported_within_its_group() -> None:
    fault = PipelineFault("slow", rank=3, iteration=1, factor=2.0)
    found = labelled(replace(SHORT, faults=(fault,)), "late_ns, last_calls, calls")
    slow = [row for key, row in found.items() if key[0] == 3 and key[1] > 1]
    peer = [row for key, row in found.items() if key[0] == 2 and key[1] > 1]
    assert all(last == calls and late > 0 for late, last, calls in slow)
    assert all(last == 0 and late == 0 for late, last, _ in peer)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_whatever_is_drawn_is_labelled_as_the_trainer_says(seed: int) -> None:
    """But for torn iterations, and what recorders lost: there no task gets another one's name."""
    drawn = experiment("healthy", seed)
    scenario = replace(
        drawn,
        recorder="hooks",
        configuration_stated=True,
        micro_batches_from=0,
        gpus_per_node=drawn.world_size,
        clock_offset_ns=0,
    )
    true, found = recorded_tasks(scenario), labelled(scenario, "whole, started_ns")
    before = 1 if scenario.starts_in else 0
    named = {(key[0], key[1] + before, *key[2:]) for key in found}
    whole = {key for key in true if key[1] >= before}
    assert {key for key in named if key[1] >= before} <= whole
    assert len(whole - named) <= (0.1 if scenario.holes else 0.0) * len(whole)


@pytest.mark.skipif(not MEGATRACE.exists(), reason="the recording is not here")
def test_a_real_recording_with_holes_is_labelled_alike_on_all_stages() -> None:
    with Incident.empty() as incident:
        detect.load([MEGATRACE], incident, None)
        incident.require(["labelled_tasks"])
        found = tasks(incident, "labelled_tasks", "whole")
    stages = {key[0]: key[3] for key in found}
    assert stages == {rank: rank // 2 for rank in range(8)}
    seen: dict[tuple[int, int], set[tuple[str, int]]] = {}
    for (rank, iteration, task, _, _, micro_batch), (whole,) in found.items():
        assert micro_batch in range(8)
        if whole:
            seen.setdefault((rank, iteration), set()).add((task, micro_batch))
    full = {key: len(names) for key, names in seen.items() if len(names) == 16}
    # Numbers of operations tell: 40 iterations and what came of the 41st, with two lost.
    assert {iteration for _, iteration in full} == {0, *range(3, 41)}
    assert len(full) >= 0.97 * len(seen)
