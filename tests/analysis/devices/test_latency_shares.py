"""Which end of slow pings is slow, from pairs alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncall.analysis.devices.latency import shares


@settings(max_examples=30, deadline=None)
@given(
    own=st.lists(st.integers(5, 15), min_size=5, max_size=12),
    slow=st.integers(0, 4),
    excess=st.integers(10, 200),
)
def test_the_slow_end_stands_out_by_what_it_adds(own: list[int], slow: int, excess: int) -> None:
    cost = np.array(own, dtype=float)
    cost[slow] += excess
    sender, target = np.nonzero(~np.eye(len(cost), dtype=bool))
    measured = shares(sender, target, cost[sender] + cost[target])
    others = np.delete(measured, slow)
    assert measured[slow] - np.median(others) >= excess - 10
    assert others.max() <= 15 + 6


def test_of_two_ends_neither_is_distinguished() -> None:
    measured = shares(np.array([0, 1]), np.array([1, 0]), np.array([40.0, 40.0]))
    assert measured == pytest.approx([20.0, 20.0])


def test_pairs_without_an_answer_leave_an_end_unknown() -> None:
    measured = shares(np.array([0, 1, 2]), np.array([1, 0, 0]), np.array([10.0, 10.0, np.nan]))
    assert measured[:2] == pytest.approx([5.0, 5.0])
    assert np.isnan(measured[2])
    assert len(shares(np.empty(0, dtype=int), np.empty(0, dtype=int), np.empty(0))) == 0
