"""Operations found in traffic: Pulse's Algorithm 1 for all flows at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from oncall.analysis.traffic.segmentation import NONE, Traffic, measure, segment

EPOCH_NS = 32_000
GAP_NS = 1_000_000


def algorithm_1(
    epochs: Sequence[tuple[int, int]], sizes: Sequence[int]
) -> list[tuple[int, int, bool]]:
    """Pulse's loop as printed, with a size for each operation: (first, last, complete)."""
    found: list[tuple[int, int, bool]] = []
    first, sent, last_ns = 0, 0, 0
    for number, (start_ns, size) in enumerate(epochs):
        if number > first and start_ns - last_ns >= GAP_NS and sent >= sizes[len(found)]:
            found.append((first, number - 1, True))
            first, sent = number, 0
            if len(found) == len(sizes):
                return found
        last_ns, sent = start_ns, sent + size
    if first < len(epochs):
        found.append((first, len(epochs) - 1, sent >= sizes[len(found)]))
    return found


def traffic_of(flows: Sequence[Sequence[tuple[int, int]]]) -> Traffic:
    rows = [(flow, *epoch) for flow, epochs in enumerate(flows) for epoch in epochs]
    flow, start, size = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    return Traffic(flow, start, size, EPOCH_NS)


EPOCHS = st.lists(
    st.tuples(st.sampled_from([1, 2, 10, 31, 32, 40, 500]), st.integers(1, 50_000)), max_size=60
)
SIZES = st.lists(st.integers(1, 200_000), min_size=1, max_size=8)


def at_once(steps: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Epochs (start, bytes) from (epochs since the last one, bytes)."""
    starts = np.cumsum([step for step, _ in steps]) * EPOCH_NS
    return [(int(start), size) for start, (_, size) in zip(starts, steps, strict=True)]


@given(st.lists(st.tuples(EPOCHS, SIZES), min_size=1, max_size=5))
def test_all_flows_at_once_are_cut_as_the_paper_s_loop_cuts_each(
    flows: list[tuple[list[tuple[int, int]], list[int]]],
) -> None:
    epochs = [at_once(steps) for steps, _ in flows]
    traffic = traffic_of(epochs)
    owner = np.repeat(np.arange(len(flows)), [len(sizes) for _, sizes in flows])
    expected = np.array([size for _, sizes in flows for size in sizes], dtype=np.int64)
    found = segment(traffic, owner, expected, GAP_NS, next_share=np.inf)

    offset = 0
    for flow, (_, sizes) in enumerate(flows):
        mine = np.flatnonzero(owner == flow)
        wanted = algorithm_1(epochs[flow], sizes)
        for place, operation in enumerate(mine):
            if place < len(wanted):
                first, last, complete = wanted[place]
                assert (found.first[operation], found.last[operation]) == (
                    first + offset,
                    last + offset,
                )
                assert found.complete[operation] == complete
            else:
                assert found.first[operation] == NONE
        offset += len(epochs[flow])


# What comes on top of a large operation must not look like the small one after it.
@given(
    st.lists(st.integers(80_000, 400_000), min_size=1, max_size=12),
    st.floats(1.0, 1.08),
    st.booleans(),
)
def test_operations_are_found_whether_or_not_they_lie_apart(
    sizes: list[int], overhead: float, apart: bool
) -> None:
    epochs: list[tuple[int, int]] = []
    at_ns, begins = 0, []
    for size in sizes:
        begins.append(at_ns)
        left = round(size * overhead)
        while left > 0:
            epochs.append((at_ns, min(left, 4_000)))
            left -= 4_000
            at_ns += EPOCH_NS
        at_ns += 3 * GAP_NS if apart else 0
    traffic = traffic_of([epochs])
    owner = np.zeros(len(sizes), dtype=np.int64)
    found = segment(traffic, owner, np.array(sizes), GAP_NS)
    measured = measure(traffic, found)
    assert found.complete.all()
    assert (measured.bytes >= np.array(sizes)).all()
    if apart:
        assert measured.start_ns.tolist() == begins
        assert measured.bytes.sum() == traffic.bytes.sum()
        assert not found.cut.any()


def test_back_to_back_operations_are_cut_where_the_first_s_volume_was_reached() -> None:
    traffic = traffic_of([[(number * EPOCH_NS, 1_000) for number in range(30)]])
    found = segment(traffic, np.zeros(3, dtype=np.int64), np.full(3, 10_000), GAP_NS)
    assert found.first.tolist() == [0, 10, 20]
    assert found.cut.tolist() == [True, True, False]
    assert measure(traffic, found).active_ns.tolist() == [10 * EPOCH_NS] * 3


def test_lost_epochs_of_one_operation_are_not_made_up_from_all_that_follow() -> None:
    traffic = traffic_of([[(number * EPOCH_NS, 1_000) for number in range(30) if number != 3]])
    expected = np.full(3, 10_000)
    found = segment(
        traffic, np.zeros(3, dtype=np.int64), expected, GAP_NS, enough_bytes=expected * 9 // 10
    )
    # What may be missing is an excuse where a pause follows, and no place to cut.
    assert found.first.tolist() == [0, 10, 20]
    assert found.complete.all()
    assert measure(traffic, found).bytes.tolist() == [10_000, 10_000, 9_000]


def test_pauses_inside_an_operation_are_not_communication_time() -> None:
    starts = [0, 1, 2, 40, 41, 42]  # a pause of more than a millisecond before the volume is there
    traffic = traffic_of([[(start * EPOCH_NS, 1_000) for start in starts]])
    found = segment(traffic, np.zeros(1, dtype=np.int64), np.array([6_000]), GAP_NS)
    measured = measure(traffic, found)
    assert found.complete.all()
    assert measured.active_ns.tolist() == [6 * EPOCH_NS]
    assert measured.end_ns.tolist() == [43 * EPOCH_NS]


def test_what_stopped_half_way_is_not_complete_and_what_never_began_has_no_epochs() -> None:
    traffic = traffic_of([[(0, 1_000), (EPOCH_NS, 1_000)]])
    found = segment(traffic, np.zeros(2, dtype=np.int64), np.array([5_000, 5_000]), GAP_NS)
    assert found.complete.tolist() == [False, False]
    assert found.first.tolist() == [0, NONE]
    measured = measure(traffic, found)
    assert measured.bytes.tolist() == [2_000, 0]


def test_nothing_sent_and_nothing_to_find() -> None:
    empty = traffic_of([])
    found = segment(empty, np.zeros(1, dtype=np.int64), np.array([1]), GAP_NS)
    assert found.first.tolist() == [NONE]
    one = traffic_of([[(0, 1)]])
    assert not len(segment(one, np.zeros(0, dtype=np.int64), np.zeros(0, np.int64), GAP_NS).first)
