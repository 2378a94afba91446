"""What a poller writes: whole, in pieces, damaged, of other versions."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from dpa_frames import batch, frame, page
from hypothesis import given
from hypothesis import strategies as st

from oncall.core.errors import BadInput
from oncall.node.dpa.dpa import merge
from oncall.node.dpa.dpa_pages import FrameKind, read_page, split_frames


def test_a_page_is_read() -> None:
    reported = batch(1, 7, 320, 5, 0, 9, flags=1)
    read = read_page(page(reported, number=3, more=1, gaps=2, strays=1, flows=4), "mlx5_0")
    assert (read.number, read.more, read.lost, read.flows) == (3, True, 3, 4)
    assert (read.batches == reported).all()


@given(st.lists(st.integers(1, 200), max_size=8))
def test_frames_come_in_any_pieces(pieces: list[int]) -> None:
    stream = frame(page(batch(1, 7, 320, 5))) + frame(b"a problem", kind=2, after_ns=5)
    found, left, at = [], b"", 0
    for size in (*pieces, len(stream)):
        whole, left = split_frames(left + stream[at : at + size], "poller")
        found += whole
        at += size
    assert [one.kind for one in found] == [FrameKind.PAGE, FrameKind.PROBLEM]
    assert (found[1].payload, found[1].after_ns, left) == (b"a problem", 5, b"")


@pytest.mark.parametrize(
    ("stream", "problem"),
    [
        (b"Segmentation fault (core dumped)", "has no valid frames"),
        (frame(b"", version=2), "speaks version 2, this collector reads 1"),
        (frame(b"", kind=9), "unknown kind 9"),
        (frame(b"")[:8] + b"\xff" * 24, "has no valid frames"),  # a frame of 4 GB
    ],
)
def test_what_are_no_frames_is_refused(stream: bytes, problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        split_frames(stream, "poller")


@pytest.mark.parametrize(
    ("payload", "problem"),
    [
        (page()[:50], "is cut off"),
        (page(magic=1), "is not a page"),
        (page(version=7), "speaks version 7"),
        (page(header_bytes=96), "came with"),
        (page(batch(1, 7, 1, 5))[:-1], "came with 191"),
        (page(batch(1, 7, 1, 5), batches=2), "cannot hold 2 batches"),
        (page(epoch_ns=0), "epoch length or byte unit"),
    ],
)
def test_what_is_no_page_is_refused(payload: bytes, problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        read_page(payload, "mlx5_0")


@given(st.data())
def test_damage_is_bad_input_and_nothing_else(data: Any) -> None:
    good = frame(page(batch(1, 7, 320, 5), batch(2, 8, 320, 5)))
    damaged = bytearray(good)
    for at in data.draw(st.lists(st.integers(0, len(good) - 1), min_size=1, max_size=6)):
        damaged[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(good)))
    try:
        found, _ = split_frames(bytes(damaged[:cut]), "poller")
        for one in found:
            read_page(one.payload, "mlx5_0")
    except BadInput:
        pass


_BATCHES = st.lists(
    st.tuples(
        *(st.integers(0, 2), st.integers(7, 9), st.integers(0, 3)),
        *(st.lists(st.integers(0, 65535), max_size=4), st.integers(0, 7)),
    ),
    max_size=12,
)


@given(_BATCHES)
def test_what_threads_counted_is_added_up(reported: list[Any]) -> None:
    units: Counter[tuple[int, int, int]] = Counter()
    flags: dict[tuple[int, int, int], int] = {}
    for vhca, qpn, first, counts, flag in reported:
        for at, count in enumerate(counts):
            if count:
                key = (vhca, qpn, first + at)
                units[key] += count
                flags[key] = flags.get(key, 0) | flag
    rows = [batch(v, q, first, *counts, flags=flag) for v, q, first, counts, flag in reported]
    merged = merge(np.concatenate(rows) if rows else batch(0, 0, 0)[:0])
    assert merged.tolist() == [(*key, units[key], flags[key]) for key in sorted(units)]
