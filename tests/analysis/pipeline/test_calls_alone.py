"""Pipelines of which a log of calls is all there is: when each rank called, never when it ended."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oncall.analysis.tasks.task_positions import Tasks
from oncall.analysis.tasks.task_times import _runs_ahead
from oncall.evidence.incident import Incident
from oncall_lab.pipeline import PipelineFault, PipelineScenario, simulate_pipeline

SMALL: dict[str, Any] = {
    "recorder": "calls", "iterations": 9, "layers": 4, "micro_batches": 4, "dp": 1,
    "configuration_stated": False,
}  # fmt: skip


def slow_stages(**values: Any) -> set[tuple[Any, ...]]:
    """Rank, peer, stage and whether the network, of all that was slow."""
    incident, _ = simulate_pipeline(PipelineScenario(**(SMALL | values)))
    with incident:
        incident.provide(["slow_stages"])
        rows = incident.con.execute("SELECT rank, peer, stage, network FROM slow_stages")
        return set(rows.fetchall())


@pytest.mark.parametrize("host_ahead", [False, True])
def test_the_rank_that_a_delay_holds_is_named(host_ahead: bool) -> None:
    fault = PipelineFault("delay", 4, 6, "backward", micro_batch=1, delay_ns=10**9)
    assert slow_stages(faults=(fault,), host_ahead=host_ahead) == {(4, None, 2, False)}


def test_a_delayed_transfer_names_both_ends_though_two_are_exchanged_at_once() -> None:
    fault = PipelineFault("delay", 3, 6, "forward_send", micro_batch=3, delay_ns=10**9)
    ((rank, peer, _, network),) = slow_stages(faults=(fault,))
    assert ({rank, peer}, network) == ({3, 5}, True)


def test_who_comes_late_to_a_first_call_computed_if_its_input_was_there() -> None:
    fault = PipelineFault("delay", 0, 6, "backward", micro_batch=1, delay_ns=10**9)
    assert slow_stages(faults=(fault,)) == {(0, None, 0, False)}


def test_what_is_slow_for_most_of_the_recording_is_reported_by_its_first_iterations() -> None:
    fault = PipelineFault("slow", 2, 5, factor=2.0)
    found = slow_stages(faults=(fault,), iterations=16)
    assert {(rank, stage) for rank, _, stage, _ in found} == {(2, 1)}


def test_transfers_are_over_when_the_host_goes_on() -> None:
    incident, _ = simulate_pipeline(PipelineScenario(**SMALL))
    with incident:
        assert _known(incident, "forward_recv") > 0.95
        # Nothing tells of the last Send, after which all wait for one another.
        assert 0.3 < _known(incident, "backward_send") < 0.9
    incident, _ = simulate_pipeline(PipelineScenario(**SMALL, overlap_p2p=True))
    with incident:
        assert _known(incident, "forward_send") == 0


def _known(incident: Incident, task: str) -> float:
    incident.require(["labelled_tasks"])
    ((share,),) = incident.con.execute(
        "SELECT count(ended_ns) / count(*) FROM labelled_tasks WHERE task = ?", [task]
    ).fetchall()
    return float(share)


def test_a_host_that_does_not_wait_between_two_tasks_tells_when_both_were_over() -> None:
    """Of a backward and the forward after it the second one's end is the device's, for both."""
    none, tasks = np.full(4, -1), np.arange(4)
    placed = Tasks(
        block=none * 0, backward=tasks % 2 == 0, chunk=none * 0, micro_batch=tasks // 2,
        receives=none < 0, sends=none < 0, recv_at=none, send_at=none, group=tasks // 2,
        low=none, high=none, evaluation=none > 0, complete=none < 0,
    )  # fmt: skip
    started = np.array([[0, 10, 1_000, 1_010]])
    ended = np.array([[10, 1_000, 1_010, 2_000]])
    count = np.full(4, 8)
    ahead = _runs_ahead(placed, started, ended, np.array([[9, 20, 1_009, 1_020]]), count, 0.5)
    assert ahead.tolist() == [[True] * 4]
    # Where the last calls come just before the end, hosts are held by their devices.
    held = _runs_ahead(placed, started, ended, np.array([[9, 990, 1_009, 1_990]]), count, 0.5)
    assert held.tolist() == [[False] * 4]
    # Of two calls the second one comes halfway where the host waits in each.
    half = np.array([[5, 500, 1_005, 1_500]])
    for last in (half, half + np.array([[0, -20, 0, 20]])):
        paced = _runs_ahead(placed, started, ended, last, np.full(4, 2), 0.5)
        assert paced.tolist() == [[False] * 4]
