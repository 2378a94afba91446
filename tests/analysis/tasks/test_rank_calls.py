"""Where a recorder lost calls, by its numbers; which transfers go together."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from oncall.analysis.tasks.rank_calls import UNKNOWN, exchange_starts, lost_before


def test_what_was_lost_lies_before_the_first_of_a_group_call_whatever_its_number() -> None:
    stages, tensor = 0, 1
    lane = np.array([stages, tensor, stages, stages, tensor])
    seq = np.array([569, 570, 575, 574, 575])  # after the hole the Send was called, then the Recv
    assert lost_before(lane, seq).tolist() == [False, False, True, False, False]


@given(
    lanes=st.lists(st.integers(0, 3), min_size=1, max_size=40),
    hole=st.tuples(st.integers(0, 40), st.integers(1, 10)),
)
def test_a_hole_is_found_no_earlier_than_it_is(lanes: list[int], hole: tuple[int, int]) -> None:
    lane = np.array(lanes)
    seq = np.array([lanes[:i].count(one) for i, one in enumerate(lanes)])
    begin, end = hole[0], hole[0] + hole[1]
    kept = np.r_[: min(begin, len(lane)), min(end, len(lane)) : len(lane)]
    found = np.flatnonzero(lost_before(lane[kept], seq[kept]))
    # Only a communicator that called before and after it tells.
    tells = set(lanes[:begin]) & set(lanes[begin:end]) & set(lanes[end:])
    first = min((i for i in range(end, len(lane)) if lane[i] in tells), default=None)
    assert found.tolist() == ([] if first is None else [first - (end - begin)])


def test_what_the_host_calls_directly_one_after_the_other_is_one_exchange() -> None:
    us = 1000
    group = np.array([UNKNOWN] * 5)
    position = np.array([0, 24, 25, 26, 27])  # 23 collectives behind the first
    at_ns = np.array([0, 90_000, 90_009, 140_000, 150_000]) * us
    starts = exchange_starts(group, at_ns, position, 120 * us)
    assert starts.tolist() == [True, True, False, True, True]


def test_a_group_call_is_one_exchange_however_long_it_takes() -> None:
    group, position = np.array([7, 7, UNKNOWN, UNKNOWN]), np.array([3, 4, 9, 15])
    starts = exchange_starts(group, np.array([0, 10**9, 2 * 10**9, 3 * 10**9]), position, 1)
    assert starts.tolist() == [True, False, True, True]
