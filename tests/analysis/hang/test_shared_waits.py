"""How often as many ranks waited before: what dumps of running jobs at any instant would show."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.together import Job

from oncall.evidence import Incident

MS = 10**6
START = 1_700_000_000 * 10**9
STEP_MS = 100
RANKS = 6

Calls = Mapping[int, Mapping[int, float]]  # number of a call: rank: when it made the call, ms


def dumped(incident: Incident | Job, job: str, calls: Calls, at_ms: float) -> None:
    """Add what the dumps of a job at that instant hold of its calls, which end with the last."""
    all_dumped(incident, {job: (calls, at_ms)})


def all_dumped(incident: Incident | Job, jobs: Mapping[str, tuple[Calls, float]]) -> None:
    rows = [
        (job, seq, rank, START + int(called * MS), max(made.values()) <= at_ms)
        for job, (calls, at_ms) in jobs.items()
        for seq, made in calls.items()
        for rank, called in made.items()
        if called <= at_ms
    ]
    names = ("job", "seq", "rank", "enqueued_ns", "done")
    columns = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    incident.append("ops", {"comm": 1, "kind": "coll", "op": "AllReduce"} | columns)
    members = {"job": np.repeat([*jobs], RANKS), "rank": [*range(RANKS)] * len(jobs)}
    incident.append("comms", {"comm": 1, "size": RANKS} | members)


def shares(incident: Incident) -> dict[str, float]:
    incident.require(["shared_waits"])
    return dict(incident.con.execute("SELECT job, share FROM shared_waits").fetchall())


def steady(late_ms: float, steps: Iterable[int] = range(1, 40)) -> Calls:
    """Five ranks call together and the sixth so much later, step by step."""
    return {
        step: {rank: step * STEP_MS + (late_ms if rank == 5 else 0) for rank in range(RANKS)}
        for step in steps
    }


@pytest.mark.parametrize("late_ms", [2, 20, 60])
def test_the_share_is_that_of_the_time_in_which_as_many_waited(job: Job, late_ms: float) -> None:
    dumped(job, job.name, steady(late_ms), 39 * STEP_MS + 1)
    ((share,),) = job.found("shared_waits", "share")
    pause = (STEP_MS - late_ms if late_ms > STEP_MS / 2 else max(STEP_MS - late_ms, late_ms)) / 3700
    assert share == pytest.approx((late_ms / STEP_MS + pause) / (1 + RANKS * pause), rel=0.1)


def test_without_a_past_any_rank_may_be_the_one_that_is_waited_for() -> None:
    with Incident.empty() as incident:
        dumped(incident, "j", steady(50, [1, 2]) | {1: {rank: 100 for rank in range(RANKS)}}, 201)
        incident.con.execute("DELETE FROM ops WHERE seq = 1 AND rank <> 5")
        (share,) = shares(incident).values()
    assert share == pytest.approx(1 / RANKS)


def test_where_all_have_called_and_no_end_is_recorded_nothing_is_known() -> None:
    with Incident.empty() as incident:
        dumped(incident, "j", steady(20), 3950)
        incident.con.execute("UPDATE ops SET done = false WHERE seq = 39")
        assert shares(incident) == {}


@pytest.mark.parametrize(
    ("lost", "both", "waited_ms"),
    [
        pytest.param(0, True, 20, id="both ends recorded"),
        pytest.param(3, True, 20, id="the sender's ring lost the first"),
        pytest.param(0, False, 80, id="one end recorded"),
    ],
)
def test_a_transfer_is_waited_for_until_both_ends_have_called(
    job: Job, lost: int, both: bool, waited_ms: float
) -> None:
    """Rank 0 sends to the others, 20 ms after they call. A watchdog sees the ends 60 ms late."""
    dumped(job, job.name, steady(1, [1, 39, 40]), 40 * STEP_MS + 0.5)
    for receiver in range(1, RANKS):
        for rank, peer, op, late_ms in ((0, receiver, "Send", 20), (receiver, 0, "Recv", 0)):
            seqs = range(2 + lost * (op == "Send"), 39 if both or op == "Recv" else 2)
            rows = {"seq": [*seqs], "rank": rank, "peer": peer, "kind": "p2p", "op": op}
            called = [START + (seq * STEP_MS + late_ms) * MS for seq in seqs]
            times = {"enqueued_ns": called, "done": True}
            times["ended_ns"] = [at + (80 - late_ms) * MS for at in called]
            job.append("ops", {"comm": 1} | rows | times)
    ((before,),) = job.found("shared_waits", "before")
    assert before == pytest.approx(waited_ms / STEP_MS, rel=0.25)


def test_a_running_job_is_seen_in_a_state_as_often_as_its_share_says() -> None:
    """Of 400 dumps at random instants, of jobs whose ranks call at random times."""
    draw = random.Random(4)
    instants = 400
    jobs = {}
    for number in range(instants):
        spread = draw.choice((5, 20, 60))
        calls = {
            step: {rank: step * STEP_MS + draw.uniform(0, spread) for rank in range(RANKS)}
            for step in range(1, 40)
        }
        jobs[f"j{number}"] = (calls, draw.uniform(20, 39) * STEP_MS)
    with Incident.empty() as incident:
        all_dumped(incident, jobs)
        found = sorted(shares(incident).values())
    for level in (0.05, 0.1, 0.2, 0.4):
        seen = sum(share <= level for share in found) / instants
        assert seen <= level + 0.02, (level, seen)


@settings(max_examples=5, deadline=None)
@given(
    late_ms=st.integers(1, 90), shift_ms=st.integers(0, 10**9), order=st.permutations(range(RANKS))
)
def test_clocks_and_names_of_ranks_change_nothing(
    late_ms: int, shift_ms: int, order: list[int]
) -> None:
    calls = steady(late_ms)
    renamed = {
        step: {order[rank]: at + shift_ms for rank, at in made.items()}
        for step, made in calls.items()
    }
    with Incident.empty() as incident:
        dumped(incident, "as it is", calls, 39 * STEP_MS)
        dumped(incident, "renamed", renamed, 39 * STEP_MS + shift_ms)
        found = shares(incident)
    assert found["as it is"] == pytest.approx(found["renamed"])
