"""Pipelines of which a log of calls is all there is: when each rank called, never when it ended."""

from __future__ import annotations

from typing import Any

import pytest

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
