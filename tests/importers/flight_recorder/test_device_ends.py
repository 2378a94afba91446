"""When timed operations ended, from what the watchdog found at its looks."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from oncall.importers.flight_recorder.entries import ended_by_then

LOOKS_EVERY_NS = 100_000_000
OPERATION = st.tuples(
    st.integers(0, 2),  # stream
    st.integers(0, 80_000_000),  # the host, from call to call
    st.integers(0, 60_000_000),  # the device, before it
    st.integers(1, 150_000_000),  # how long it took
)


def _ran(operations: list[tuple[int, int, int, int]], phase_ns: int) -> tuple[np.ndarray, ...]:
    """Streams, calls, discovered begins and ends, durations, and the true ends of operations."""
    free, now = [0, 0, 0], 1_000_000_000
    rows = []
    for stream, host_ns, device_ns, took_ns in operations:
        now += host_ns
        begun = max(now, free[stream]) + device_ns
        free[stream] = begun + took_ns
        begun_found, found = (
            -(-(at - phase_ns) // LOOKS_EVERY_NS) * LOOKS_EVERY_NS + phase_ns
            for at in (begun, free[stream])
        )
        rows.append((stream, now, begun_found, found, took_ns, free[stream]))
    return tuple(np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))


@given(st.lists(OPERATION, min_size=1, max_size=40), st.integers(0, LOOKS_EVERY_NS - 1))
def test_an_end_is_no_later_than_the_true_one_and_within_a_look_of_it(
    operations: list[tuple[int, int, int, int]], phase_ns: int
) -> None:
    *columns, true_ns = _ran(operations, phase_ns)
    found = ended_by_then(*columns)
    assert (found <= true_ns).all()
    assert (found >= columns[1] + columns[4]).all()
    assert (true_ns - found <= LOOKS_EVERY_NS).all()


@given(st.lists(OPERATION, min_size=1, max_size=40), st.integers(0, LOOKS_EVERY_NS - 1))
def test_a_host_that_is_not_ahead_tells_the_end_exactly(
    operations: list[tuple[int, int, int, int]], phase_ns: int
) -> None:
    waits = [(stream, host + took, 0, took) for stream, host, _, took in operations]
    *columns, true_ns = _ran(waits, phase_ns)
    _, called, _, _, took = columns
    at_once = true_ns == called + took  # no operation that waits is on its stream
    assert (ended_by_then(*columns)[at_once] == true_ns[at_once]).all()


def test_what_has_no_duration_ended_when_it_was_discovered() -> None:
    none = np.zeros(2, dtype=np.int64)
    ended = np.array([5_000_000_000, 0], dtype=np.int64)
    found = ended_by_then(none, none + 4_000_000_000, none, ended, none)
    assert found.tolist() == ended.tolist()


TIMES = st.tuples(*[st.integers(0, 2**62)] * 3, st.integers(-(10**18), 10**18))


@example([(0, 0, 5 * 10**18, 10**18)] * 12)  # their sum is no int64
@given(st.lists(TIMES, min_size=1, max_size=30))
def test_what_a_damaged_file_says_stays_between_call_and_stamp(rows: list[tuple[int, ...]]) -> None:
    called, begun, ended, took = (np.array(column) for column in zip(*rows, strict=True))
    found = ended_by_then(np.zeros(len(rows), dtype=np.int64), called, begun, ended, took)
    assert (found <= ended).all()
    assert (found >= np.minimum(called, ended)).all()
