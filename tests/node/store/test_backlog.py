"""A backlog forgets the oldest rows and knows how many; whatever leaves it, bookmarks cover it."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from oncall.node.store.backlog import Backlog
from oncall.node.store.batch import Batch

_SIZES = st.lists(st.integers(0, 50), max_size=30)
_MANY_BYTES = 10**9


def _filled(sizes: list[int], most_bytes: int) -> tuple[Backlog, list[Batch]]:
    """A backlog of so many rows a drain, of which the bookmark counts all rows so far."""
    backlog = Backlog(most_bytes)
    batches = []
    read = 0
    for size in sizes:
        read += size
        drained = [Batch("ops", size, {"seq": np.arange(size)})] if size else []
        backlog.add(drained, {"rings": {"read": read}})
        batches += drained
    return backlog, batches


@given(_SIZES, st.integers(0, 5000))
def test_it_keeps_the_newest_within_its_bound(sizes: list[int], most_bytes: int) -> None:
    backlog, batches = _filled(sizes, most_bytes)
    kept = list(backlog.batches)
    assert kept == batches[len(batches) - len(kept) :]
    assert backlog.bytes == sum(batch.bytes for batch in kept) <= most_bytes
    assert backlog.dropped == sum(sizes) - len(backlog)


@given(_SIZES, st.sampled_from([300, 5000, 64 * 300, _MANY_BYTES]), st.integers(1, 1000))
def test_each_bookmark_counts_what_left_before_it(
    sizes: list[int], most_bytes: int, piece_bytes: int
) -> None:
    backlog, _ = _filled(sizes, most_bytes)
    out = backlog.dropped
    marked: dict[str, Any] = {}
    while piece := backlog.first(piece_bytes):
        for drain in piece:
            out += drain.rows
            marked |= drain.bookmarks
        assert marked["rings"] == {"read": out}
        backlog.written(piece)
    assert out == sum(sizes)
    assert (len(backlog), backlog.bytes) == (0, 0)


def test_a_bookmark_stays_when_its_rows_turn_out_to_be_written() -> None:
    backlog, batches = _filled([3, 4], 2000)
    backlog.remove(batches[:1])
    backlog.add_first([Batch("collectors", 1, {"dropped": 2})])
    backlog.remove(batches[1:])
    drains = backlog.first(_MANY_BYTES)
    assert [drain.bookmarks for drain in drains] == [{"rings": {"read": 3}}, {"rings": {"read": 7}}]
    assert [batch.table for drain in drains for batch in drain.batches] == ["collectors"]


def test_small_drains_are_joined() -> None:
    backlog, batches = _filled([1] * 10_000, 1_000_000)
    assert len(backlog.first(_MANY_BYTES)) <= 128
    assert list(backlog.batches) == batches
