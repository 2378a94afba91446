"""Windows of work requests: no request in two, no idle time within, what is outstanding adds up."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from oncall.node.verbs.windows import Runs, representative, windows


def runs(*rows: tuple[int, int, int, int, int, int]) -> Runs:
    columns = np.array(rows, np.int64).reshape(-1, 6).T
    return Runs(*columns)


def test_a_window_ends_after_so_many_requests() -> None:
    result = windows(runs(*[(1, k, k + 1, 10, 100, 90 - 10 * k) for k in range(10)]), w=50)
    assert result.completed.tolist() == [50, 50] and result.full.all()
    assert result.bytes.tolist() == [500, 500]
    assert (result.start_ns.tolist(), result.end_ns.tolist()) == ([0, 5], [5, 10])
    assert result.posted.tolist() == [100, 0]  # all of them before the first completion


def test_nothing_outstanding_ends_a_window_too() -> None:
    result = windows(runs((1, 0, 5, 4, 40, 0), (1, 900, 905, 4, 40, 0)), w=50)
    assert (result.start_ns.tolist(), result.end_ns.tolist()) == ([0, 900], [5, 905])
    assert result.posted.tolist() == [4, 4] and not result.full.any()


@given(data=st.data(), w=st.integers(1, 40))
def test_windows_part_the_requests(data: st.DataObject, w: int) -> None:
    rows = []
    for flow in range(data.draw(st.integers(1, 3))):
        at = 0
        for _ in range(data.draw(st.integers(1, 20))):
            begun = at + data.draw(st.integers(0, 9))
            at = begun + data.draw(st.integers(0, 9))
            requests, bytes_, left = (data.draw(st.integers(low, 20)) for low in (1, 0, 0))
            rows.append((flow, begun, at, requests, bytes_, left))
    result = windows(runs(*rows), w)
    every = np.array(rows)
    for flow in np.unique(every[:, 0]):
        mine = result.flow == flow
        assert result.completed[mine].sum() == every[every[:, 0] == flow, 3].sum()
        assert result.bytes[mine].sum() == every[every[:, 0] == flow, 4].sum()
        assert (np.diff(result.start_ns[mine]) >= 0).all()
    assert (result.posted >= 0).all() and (result.end_ns >= result.start_ns).all()
    kept = representative(result)
    assert sorted(result.flow[kept]) == sorted(np.unique(every[:, 0]))


def test_the_slowest_full_window_tells_most() -> None:
    rows = [(1, 0, 10, 50, 1000, 5), (1, 10, 60, 50, 1000, 5), (1, 60, 61, 1, 1, 0)]
    result = windows(runs(*rows), w=50)
    assert result.end_ns[representative(result)].tolist() == [60]
