"""What stopped a training of which calls alone are recorded, and what is only the end of a log."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from oncall.evidence import Incident
from oncall_lab.pipeline import simulate_pipeline
from oncall_lab.pipeline.fault import PipelineFault
from oncall_lab.pipeline.scenario import PipelineScenario

# Ranks 0-7: two to a tensor group, two replicas, two stages.
JOB = PipelineScenario(
    seed=7, recorder="calls", iterations=8, tp=2, pp=2, dp=2, layers=4, micro_batches=4
)
COMPUTES = PipelineFault("hang", rank=2, iteration=6, task="backward", micro_batch=1)
SENDS = PipelineFault("hang", rank=2, iteration=6, task="forward_send", micro_batch=2)


def found(incident: Incident, columns: str) -> list[tuple[Any, ...]]:
    """The roots of a job that is not seen to move."""
    incident.require(["hang_roots", "job_progress"])
    return incident.con.execute(
        f"SELECT {columns} FROM hang_roots JOIN job_progress USING (job) "
        "WHERE state = 'stopped' ORDER BY ALL"
    ).fetchall()


def recorded(scenario: PipelineScenario, *faults: PipelineFault) -> Incident:
    return simulate_pipeline(replace(scenario, faults=faults))[0]


def cut(incident: Incident, share: float, ranks: str = "true") -> None:
    """Leave out what these ranks called after a share of the recording."""
    incident.con.execute(
        f"""DELETE FROM ops WHERE {ranks} AND enqueued_ns > (
            SELECT min(enqueued_ns) + {share} * (max(enqueued_ns) - min(enqueued_ns)) FROM ops)"""
    )


@pytest.mark.parametrize("reported", [True, False])
def test_the_rank_whose_call_the_others_wait_for_stopped(reported: bool) -> None:
    with recorded(replace(JOB, configuration_stated=reported), COMPUTES) as incident:
        assert found(incident, "how, kind, rank, victims >= 3") == [("absent", "coll", 2, True)]
        waits = "SELECT waited_ns > 5 * longest_ns FROM overdue_calls WHERE rank = 2"
        assert incident.con.execute(waits).fetchall() == [(True,)]


def test_of_a_transfer_whose_both_ends_are_called_both_are_reported() -> None:
    with recorded(JOB, SENDS) as incident:
        assert found(incident, "how, kind, ends") == [("together", "p2p", [2, 6])]


def test_where_hosts_call_ahead_the_group_is_reported_and_no_rank() -> None:
    began = replace(COMPUTES, rank=6, micro_batch=0)
    with recorded(replace(JOB, host_ahead=True), began) as incident:
        assert found(incident, "how, kind, rank") == [("together", "coll", None)]


@pytest.mark.parametrize("share", [0.61, 0.83, 0.97])
def test_a_log_that_ends_while_training_goes_on_is_no_hang(share: float) -> None:
    with recorded(replace(JOB, clock_offset_ns=0)) as incident:
        cut(incident, share)
        assert found(incident, "*") == []


def test_where_ends_are_recorded_nothing_is_reported_of_calls_alone() -> None:
    with recorded(replace(JOB, recorder="hooks"), COMPUTES) as incident:
        incident.require(["call_roots"])
        assert incident.is_empty("joint_calls") and incident.is_empty("call_roots")


@pytest.mark.parametrize(
    ("lost_until_ns", "behind"), [(45, {0: False}), (None, {0: False, 1: True})]
)
def test_who_may_have_made_a_call_that_its_recorder_lost_is_not_waited_for(
    lost_until_ns: int | None, behind: dict[int, bool]
) -> None:
    """Rank 1 made one call of communicator 2 as far as is known, rank 0 two."""
    with Incident.empty() as incident:
        call = {"job": "j", "kind": "coll", "op": "AllReduce"}
        for rank in (0, 1):
            for comm, seq, at_ns in ((1, 1, 10), (2, 1, 20), (1, 2, 30), (2, 2, 40), (1, 3, 45)):
                lost = rank == 1 and (lost_until_ns is not None and 20 < at_ns < lost_until_ns)
                if not lost and (rank, comm, seq) != (1, 2, 2):
                    row = {"rank": [rank], "comm": comm, "seq": seq, "enqueued_ns": at_ns}
                    incident.append("ops", call | row)
        incident.require(["call_fronts"])
        found = incident.con.execute("SELECT rank, behind FROM call_fronts WHERE comm = 2")
        assert dict(found.fetchall()) == behind
