"""The waiting graph against a plain one, and its laws."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.sql import found

from oncall.analysis.network import waiting_graph
from oncall.evidence.incident import Incident
from oncall_lab.network.collective import messages_of


def ring(members: int, took: np.ndarray[Any, Any]) -> dict[str, Any]:
    """An all-gather whose step s of member m takes `took[s - 1, m]`; each begins when it can."""
    steps = messages_of("RING", "AllGather", members, 1)
    ended = np.zeros(len(steps), np.int64)
    started = np.zeros(len(steps), np.int64)
    for place in range(len(steps)):
        need = steps.needs[place, 0]
        if need >= 0:
            started[place] = max(ended[need], ended[place - members])
        ended[place] = started[place] + took[steps.step[place] - 1, steps.src[place]]
    return {
        "flow": steps.src,
        "src": steps.src,
        "dst": steps.dst,
        "step": steps.step,
        "started_ns": started,
        "ended_ns": ended,
    }


def put_ring(incident: Incident, members: int, took: np.ndarray[Any, Any]) -> None:
    incident.append(
        "flow_steps",
        {
            **ring(members, took),
            "job": "j",
            "comm": np.full(took.size, 7, np.uint64),
            "seq": 0,
            "bytes": 1000,
            "expected_ns": 100,
        },
    )


@given(st.integers(2, 9).flatmap(lambda n: st.tuples(st.just(n), st.randoms())))
def test_the_critical_path_is_the_collectives_time(drawn: tuple[int, Any]) -> None:
    members, random = drawn
    took = np.array([[random.randint(90, 300) for _ in range(members)] for _ in range(members - 1)])
    steps = ring(members, took)
    nothing = np.ma.masked_all(took.size, np.int64)
    columns = {**steps, "collective": np.zeros(took.size, np.int64), "waits_for_flow": nothing}
    before, _ = waiting_graph.predecessors(columns, steps["started_ns"], steps["ended_ns"])
    last = np.array([np.argmax(steps["ended_ns"])])
    path = waiting_graph.walked(before, last)
    assert (steps["ended_ns"] - steps["started_ns"])[path].sum() == steps["ended_ns"].max()
    assert path.sum() == members - 1
    later = steps["step"] > 1
    assert (steps["started_ns"][later] == steps["ended_ns"][before[later]]).all()


def test_pruned_is_who_nobody_waits_for(incident: Incident) -> None:
    took = np.full((3, 4), 100)
    took[0, 1] = 150
    put_ring(incident, 4, took)
    rows = found(incident, "step_waits", "src, step", "NOT kept")
    waited = incident.con.execute(
        "SELECT count(*) FROM step_waits WHERE kept AND waiters = 0 AND step < 3"
    ).fetchall()
    assert waited == [(0,)]
    assert rows == [(0, 1), (0, 2), (3, 1)]  # what comes from rank 1 is waited for, not these


def test_a_slow_step_is_found_with_what_it_cost(incident: Incident) -> None:
    took = np.full((3, 4), 104)
    took[1, 2] = 190
    put_ring(incident, 4, took)
    rows = found(
        incident, "critical_steps", "src, dst, step, excess_ns, share, lost_ns, took_ns", "late"
    )
    assert rows == [(2, 3, 2, 86, 1.0, 86, 104 + 190 + 104)]


def test_overhead_that_all_steps_have_is_not_lateness(incident: Incident) -> None:
    put_ring(incident, 4, np.full((3, 4), 109))
    assert found(incident, "step_waits", "count(*)", "late") == [(0,)]


def test_steps_that_are_all_slow_are_late(incident: Incident) -> None:
    put_ring(incident, 4, np.full((3, 4), 200))
    assert found(incident, "step_waits", "count(*)", "late") == [(12,)]


def test_reported_dependencies_are_followed(incident: Incident) -> None:
    incident.append(
        "flow_steps",
        {
            "job": "j",
            "comm": np.full(3, 7, np.uint64),
            "seq": 0,
            "flow": [1, 2, 3],
            "src": [0, 1, 2],
            "dst": [3, 4, 5],
            "step": [1, 1, 2],
            "started_ns": [0, 0, 60],
            "ended_ns": [60, 55, 90],
            "waits_for_flow": [None, None, 1],
        },
    )
    rows = found(incident, "step_waits", "waited_for, after_src, after_dst, after_step", "step = 2")
    assert rows == [("data", 0, 3, 1)]


def test_who_receives_goes_on_before_the_sender_knows_it(incident: Incident) -> None:
    incident.append(
        "flow_steps",
        {
            "job": "j",
            "comm": np.full(3, 7, np.uint64),
            "seq": 0,
            "src": [0, 3, 0],
            "dst": [1, 0, 1],
            "step": [1, 1, 2],
            "started_ns": [0, 0, 1_990_000],
            "ended_ns": [1_000_000, 2_000_000, 3_000_000],
        },
    )
    rows = found(incident, "step_waits", "waited_for, after_src, gap_ns", "step = 2")
    assert rows == [("data", 3, 0)]


def test_ten_thousand_predecessors_are_walked_together() -> None:
    before = np.arange(-1, 9_999)
    walked = waiting_graph.walked(before, np.array([9_999]))
    assert walked.all()
