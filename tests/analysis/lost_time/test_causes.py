"""Which ranks are replayed without their excess, and what that leaves out: nothing that counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oncall.analysis.lost_time import causes
from oncall.analysis.lost_time.books import books_of
from oncall.analysis.lost_time.causes import Books
from oncall.analysis.lost_time.limits import Limits
from oncall.analysis.lost_time.programs import read_programs
from oncall_lab import TrainingFault, TrainingScenario, simulate

FAULTS = {
    "healthy": (),
    "slow": (TrainingFault("S1", (3,), at_ns=10 * 10**9),),
    "link": (TrainingFault("S2", (3,), at_ns=10 * 10**9, factor=20.0),),
}


def books(name: str) -> Books:
    scenario = TrainingScenario(tp=2, pp=2, dp=2, duration_ns=30 * 10**9, faults=FAULTS[name])
    with simulate(scenario)[0] as incident:
        incident.require(["operations", "members"])
        programs = read_programs(incident.con, "simulated", Limits())
    assert programs is not None
    found = books_of(programs, Limits())
    assert found is not None
    return found


@pytest.mark.parametrize("name", FAULTS)
def test_a_rank_that_is_not_replayed_gains_too_little_to_count(name: str) -> None:
    """With a least gain of nothing all ranks are replayed."""
    limits, none = Limits(), Limits(least_gain=0.0)
    for one in books(name).classes:
        everybody = np.arange(one.order.graph.ranks)[:, None]
        whole = np.maximum(one.length_ns, one.replayed_ns)
        for few, many in (
            (causes.gains_of_own(one, everybody, (), limits),
             causes.gains_of_own(one, everybody, (), none)),
            (causes.gains_of_transfers(one, everybody, [], limits),
             causes.gains_of_transfers(one, everybody, [], none)),
        ):  # fmt: skip
            left_out = (few != many).any(1)
            assert (many[left_out] < limits.least_gain / 2 * whole).all()


def test_nobody_of_a_healthy_job_is_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> Any:
        raise AssertionError("replayed")

    classes = books("healthy").classes
    monkeypatch.setattr(type(classes[0].order), "replay", never)
    for one in classes:
        found = causes.gains_of_own(one, np.arange(one.order.graph.ranks)[:, None], (), Limits())
        assert not found.any()
