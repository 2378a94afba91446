"""What is left in buffers is told from what was lost."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from oncall.analysis.buffered import begins_late


def late(lane: list[int], expected: list[int], sent: list[int]) -> list[bool]:
    told: list[bool] = begins_late(np.array(lane), np.array(expected), np.array(sent)).tolist()
    return told


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
    assert late(*map(list, zip(*pieces, strict=True))) == expected  # type: ignore[arg-type]
