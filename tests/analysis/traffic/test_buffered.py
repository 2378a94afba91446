"""What is left in buffers is distinguished from what was lost."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from oncall.analysis.traffic.segmentation import begins_late, begins_within


def late(lane: list[int], expected: list[int], sent: list[int]) -> list[bool]:
    reported: list[bool] = begins_late(np.array(lane), np.array(expected), np.array(sent)).tolist()
    return reported


def test_what_comes_after_the_next_has_begun_was_in_buffers() -> None:
    assert late([0, 0, 0], [100, 100, 100], [80, 120, 100]) == [False, True, False]
    assert late([0, 0, 0], [100, 100, 100], [80, 90, 130]) == [False, True, True]


def test_what_never_comes_was_lost_and_is_taken_from_no_other() -> None:
    assert late([0, 0, 0], [100, 100, 100], [80, 100, 100]) == [False, False, False]


def test_overhead_pays_for_nothing_missing_later() -> None:
    assert late([0, 0, 0], [100, 100, 100], [130, 80, 100]) == [False, False, False]


def test_lanes_are_apart() -> None:
    assert late([0, 1, 1], [100, 100, 100], [80, 120, 100]) == [False, False, False]
    assert late([0, 1, 1, 3], [9, 100, 100, 9], [0, 99, 101, 9]) == [False, False, True, False]


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 20), st.integers(0, 40)), min_size=1).map(
        sorted
    )
)
def test_it_is_the_backlog_of_a_queue(pieces: list[tuple[int, int, int]]) -> None:
    """Against the recursion: a backlog grows by what is missing and never falls below nothing."""
    expected, backlog = [], [0] * len(pieces)
    for at, (lane, volume, sent) in enumerate(pieces):
        before = backlog[at - 1] if at and pieces[at - 1][0] == lane else 0
        backlog[at] = max(0, before + volume - sent)
    for at, (lane, *_) in enumerate(pieces):
        left = at > 0 and pieces[at - 1][0] == lane and backlog[at - 1] > 0
        later = [b for b, piece in zip(backlog, pieces, strict=True) if piece[0] == lane]
        own = sum(piece[0] == lane for piece in pieces[:at])
        expected.append(left and 0 in later[own:])
    assert late(*map(list, zip(*pieces, strict=True))) == expected


def within(
    lane: list[int], expected: list[int], sent: list[int], is_open: list[bool] | None = None
) -> list[bool]:
    open_ones = None if is_open is None else np.array(is_open)
    reported: list[bool] = begins_within(
        np.array(lane), np.array(expected), np.array(sent), open_ones
    ).tolist()
    return reported


def test_what_is_sent_before_its_operation_is_seen_to_begin_is_its_own() -> None:
    assert within([0, 0, 0], [9, 9, 9], [11, 7, 9]) == [False, True, False]
    assert within([0, 0, 0], [9, 9, 9], [7, 11, 9]) == [False, True, False]


def test_what_was_lost_once_is_reported_from_what_is_on_its_way() -> None:
    sent = [9, 4, 9, 12, 6, 9]
    assert within([0] * 6, [9] * 6, sent) == [False, False, False, False, True, False]


def test_what_is_in_flight_owes_nothing() -> None:
    sent, is_open = [9, 11, 3], [False, False, True]
    assert within([0] * 3, [9] * 3, sent, is_open) == [False, False, True]
    assert within([0] * 3, [9] * 3, sent) == [False] * 3


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3), st.integers(0, 4)), min_size=1).map(
        sorted
    )
)
def test_it_lies_between_two_that_begin_alike(pieces: list[tuple[int, int, int]]) -> None:
    expected = []
    for at, (lane, *_) in enumerate(pieces):
        own = [i for i, piece in enumerate(pieces) if piece[0] == lane]
        moments = [*own, own[-1] + 1]
        balance = {i: sum(v - s for _, v, s in pieces[own[0] : i]) for i in moments}
        around = [(i, j) for i in moments for j in moments if i < at < j]
        expected.append(any(balance[i] == balance[j] != balance[at] for i, j in around))
    assert within(*map(list, zip(*pieces, strict=True))) == expected
