"""Operations put together from records: however they are cut into batches, whatever is missing."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from ring_writer import operations

from oncall.node.rings.operations import OPERATION, Tracker
from oncall.node.rings.ring_layout import RECORD, Operation

Array = np.ndarray[Any, Any]


def _advance(tracker: Tracker, records: Array) -> Array:
    ones = np.ones(len(records), np.int64)
    return tracker.advance(records, ones, ones.astype(bool)).finished


def _finished(tracker: Tracker, batches: list[Array]) -> Array:
    parts = [_advance(tracker, batch) for batch in batches]
    return np.sort(np.concatenate([np.zeros(0, OPERATION), *parts]), order="operation")


def _mixed(threads: int, each: int, seed: int) -> Array:
    """Records of several threads, each in its order, among each other as they come."""
    random = np.random.default_rng(seed)
    parts = [
        operations(1 + number * each, each, number, sequence=1, began_ns=10**9, transfers=2)
        for number in range(threads)
    ]
    turn = random.permutation(np.repeat(np.arange(threads), [len(part) for part in parts]))
    records = np.zeros(len(turn), RECORD)
    for number, part in enumerate(parts):
        records[turn == number] = part
    return records


@settings(deadline=None)
@given(
    st.integers(1, 4),
    st.integers(1, 20),
    st.integers(0, 1000),
    st.lists(st.integers(0, 500), max_size=6),
)
def test_batches_make_no_difference(threads: int, each: int, seed: int, cuts: list[int]) -> None:
    records = _mixed(threads, each, seed)
    at_once = _finished(Tracker(), [records])
    tracker = Tracker()
    piecewise = _finished(tracker, np.split(records, sorted(min(c, len(records)) for c in cuts)))
    assert (at_once == piecewise).all()
    assert len(at_once) == threads * each
    assert (at_once["ended_ns"] - at_once["entered_ns"] == 600).all()
    assert (at_once["sends"] == 8).all()
    assert len(tracker.in_flight) == 0


@given(st.binary(max_size=64 * 40))
def test_garbage_raises_nothing(garbage: bytes) -> None:
    records = np.frombuffer(garbage[: len(garbage) // 64 * 64], RECORD).copy()
    records["kind"] %= 9
    tracker = Tracker()
    _advance(tracker, records)
    assert len(tracker.in_flight) <= len(records)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.booleans()), min_size=1, max_size=40),
    st.integers(0, 40),
    st.booleans(),
)
def test_pairs_are_counted_until_one_goes_unseen(
    calls: list[tuple[int, bool]], cut: int, with_a_gap: bool
) -> None:
    records = np.concatenate(
        [
            operations(1 + n, 1, op=Operation.SEND if send else Operation.RECV, peer=peer)
            for n, (peer, send) in enumerate(calls)
        ]
    )
    lost = cut if with_a_gap and cut < len(calls) else len(calls)
    kept = records[records["operation"] != lost + 1]
    tracker = Tracker()
    finished = _finished(tracker, [kept[kept["operation"] <= cut], kept[kept["operation"] > cut]])
    counts: dict[tuple[int, bool], int] = {}
    for number, call in enumerate(calls):
        counts[call] = counts.get(call, 0) + 1
        row = finished[finished["sequence"] == number + 1]
        if number == lost:
            assert len(row) == 0
        elif number < lost:
            assert row["pair_seq"] == counts[call]
        else:
            assert row["pair_seq"] == 0
