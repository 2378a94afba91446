"""A budget of detections: never exceeded, spread over the step, and nothing of it lost or made."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncall.node.triggers.monitor import Budget

ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("take"), st.floats(0, 10)),
        st.tuples(st.just("stall"), st.floats(0, 10)),
        st.tuples(st.just("add"), st.integers(-3, 40)),
        st.tuples(st.just("hand over"), st.just(0)),
    ),
    max_size=60,
)


@given(detections=st.integers(1, 6), more=st.integers(0, 20), actions=ACTIONS)
def test_whatever_happens_no_detection_is_made_or_lost(
    detections: int, more: int, actions: list[tuple[str, float]]
) -> None:
    budget = Budget(1_000.0, detections, detections + more)
    now_ns = 0.0
    taken: list[float] = []
    stalls = added = handed = 0
    for what, amount in actions:
        if what in ("take", "stall"):
            now_ns += 100 * amount
        if what == "take" and budget.take(now_ns):
            taken.append(now_ns)
        elif what == "stall":
            stalls += budget.take_for_stall(now_ns)
        elif what == "add":
            added += budget.add(int(amount))
        elif what == "hand over":
            handed += budget.hand_over()
        assert budget.left >= 0
        assert len(taken) + budget.left + handed == detections + added
    assert stalls <= 1
    assert len(taken) <= budget.most
    apart = [later - earlier for earlier, later in pairwise(taken)]
    assert all(gap >= budget.interval_ns * (1 - 1e-9) for gap in apart)


def test_its_own_detections_last_for_the_step() -> None:
    budget = Budget(900.0, 3, 24)
    assert [at for at in range(0, 2_000, 10) if budget.take(at)] == [0, 300, 600]


def test_what_others_left_lets_a_late_step_go_on() -> None:
    budget = Budget(900.0, 3, 5)
    assert budget.add(9) == 2
    assert [at for at in range(0, 5_000, 10) if budget.take(at)] == [0, 300, 600, 900, 1200]


def test_a_standstill_waits_for_no_interval_and_needs_nothing_left() -> None:
    budget = Budget(900.0, 1, 1)
    assert budget.take(0) and budget.take_for_stall(1)
    assert not budget.take_for_stall(2)


@pytest.mark.parametrize("wrong", [(0.0, 3, 3), (1.0, 0, 3), (1.0, 3, 2)])
def test_a_budget_without_time_or_detections_is_refused(wrong: tuple[float, int, int]) -> None:
    with pytest.raises(ValueError, match="budget"):
        Budget(*wrong)
