"""Ranks are alike where they make the same calls, whatever their communicators are called."""

from __future__ import annotations

from typing import Any

import numpy as np

from oncall.analysis.tasks.call_patterns import group_order, likenesses

SEND, RECV, SUM = 1, 2, 3


def columns(*ranks: list[tuple[int, int, int, int]]) -> dict[str, Any]:
    """Calls (what, communicator, seq, group) of each rank; its neighbour is 4 ranks further."""
    rows = [(rank, *call) for rank, calls in enumerate(ranks) for call in calls]
    rank, what, place, seq, group = np.array(rows, dtype=np.int64).T
    p2p = what != SUM
    return {
        "rank": rank,
        "what": what.astype(np.uint64),
        "place": place,
        "seq": seq,
        "group_id": group,
        "p2p": p2p,
        "send": what == SEND,
        "peer": np.where(p2p, rank + 4, -1),
        "peer_recorded": p2p,
        "called_ns": np.arange(len(rank)),
        "ended_ns": np.full(len(rank), 7),
    }


def kinds(named: dict[int, int | None], *ranks: list[tuple[int, int, int, int]]) -> list[int]:
    """A number for each rank, equal for those that are alike."""
    calls = columns(*ranks)
    begins = np.flatnonzero(np.diff(calls["rank"], prepend=-1))
    found = likenesses(calls, begins, named)
    return [found.index(one) for one in found]


def test_replicas_are_alike_in_communicators_of_their_own() -> None:
    one = [(SUM, 0, 1, -1), (SEND, 5, 1, -1), (SUM, 0, 2, -1)]
    other = [(SUM, 3, 1, -1), (SEND, 1, 1, -1), (SUM, 3, 2, -1)]
    assert kinds({}, one, other) == [0, 0]


def test_who_calls_something_else_or_elsewhere_is_not_alike() -> None:
    one = [(SUM, 0, 1, -1), (SUM, 0, 2, -1)]
    elsewhere = [(SUM, 3, 1, -1), (SUM, 4, 2, -1)]
    receives = [(SUM, 3, 1, -1), (RECV, 3, 2, -1)]
    later = [(SUM, 0, 1, -1), (SUM, 0, 3, -1)]
    fewer = [(SUM, 0, 1, -1)]
    assert kinds({}, one, elsewhere, receives, later, fewer) == [0, 1, 2, 3, 4]


def test_communicators_for_different_uses_are_not_alike() -> None:
    one, other = [(SUM, 0, 1, -1)], [(SUM, 1, 1, -1)]
    assert kinds({0: 2, 1: 2}, one, other) == [0, 0]
    assert kinds({0: 2, 1: 3}, one, other) == [0, 1]


def test_a_group_call_has_its_sends_first_and_what_is_no_group_its_own_order() -> None:
    calls = columns(
        [(RECV, 0, 1, -1), (RECV, 0, 2, 8), (SEND, 1, 1, 8), (RECV, 0, 3, 9), (SEND, 1, 2, 10)]
    )
    assert group_order(calls, 2).tolist() == [0, 2, 1, 3, 4]
    assert group_order(calls, 1).tolist() == [0, 1, 2, 3, 4], "not one directly after the other"
