"""Laws of the data movement: who stands still is furthest behind, and nobody outruns the data."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncall_lab.training.algorithm import FIFO_STEPS, binary_tree, shape_of, stalled

SIZES = st.integers(min_value=2, max_value=40)
COLLECTIVES = st.sampled_from(["AllReduce", "AllGather", "ReduceScatter", "AllToAll"])
MIB = 2**20


@given(SIZES)
def test_the_tree_reaches_everybody_once(n: int) -> None:
    tree = binary_tree(n)
    assert (tree.parent < 0).sum() == 1
    assert tree.children.sum() == n - 1
    assert tree.children.max() <= 2
    below = np.flatnonzero(tree.parent >= 0)
    assert (tree.depth[below] == tree.depth[tree.parent[below]] + 1).all()


@pytest.mark.parametrize("n", [2, 4, 8, 16, 64])
def test_layers_of_a_full_tree_are_alike(n: int) -> None:
    tree = binary_tree(n)
    for depth in range(tree.depth.max() + 1):
        assert len(set(tree.children[tree.depth == depth])) == 1


@given(n=SIZES, op=COLLECTIVES, data=st.data())
def test_the_stuck_rank_of_a_ring_is_furthest_behind(n: int, op: str, data: st.DataObject) -> None:
    shape = shape_of(op, 256 * MIB, n, tree=False, channels=2)
    total = int(shape.counts()[0][0])
    column = data.draw(st.integers(0, n - 1))
    reached = data.draw(st.integers(0, total - 1))
    stuck = np.zeros((1, n), dtype=np.bool_)
    stuck[0, column] = True
    sends, recvs = stalled(shape, stuck, np.full((1, n), reached))
    counts = (sends + recvs)[0]
    assert counts[column] == counts.min()
    assert (sends <= total).all() and (recvs <= total).all()
    assert (sends >= 0).all() and (recvs >= 0).all()
    if op != "AllToAll":
        sent_to = np.roll(sends[0], 1)
        assert (recvs[0] <= sent_to).all()
        assert (sent_to - recvs[0] <= FIFO_STEPS).all()


@given(k=st.integers(1, 6), data=st.data())
def test_the_stuck_rank_of_a_tree_is_last_of_its_layer(k: int, data: st.DataObject) -> None:
    n = 2**k
    shape = shape_of("AllReduce", 256 * MIB, n, tree=True, channels=2)
    total = shape.counts()[0]
    column = data.draw(st.integers(0, n - 1))
    reached = data.draw(st.integers(0, int(total[column]) - 1))
    stuck = np.zeros((1, n), dtype=np.bool_)
    stuck[0, column] = True
    sends, recvs = stalled(shape, stuck, np.full((1, n), reached))
    peers = binary_tree(n).depth == binary_tree(n).depth[column]
    counts = (sends + recvs)[0]
    assert counts[column] == counts[peers].min()
    assert (sends[0] <= total).all() and (recvs[0] <= total).all()


@given(n=SIZES, op=COLLECTIVES)
def test_groups_that_nobody_holds_up_are_complete(n: int, op: str) -> None:
    shape = shape_of(op, MIB, n, tree=False, channels=4)
    sends, recvs = stalled(shape, np.zeros((3, n), dtype=np.bool_), np.zeros((3, n), dtype=int))
    assert (sends == shape.counts()[0]).all() and (recvs == shape.counts()[1]).all()


@given(n=SIZES, size=st.integers(1, 2**32), op=COLLECTIVES)
def test_more_bytes_take_longer(n: int, size: int, op: str) -> None:
    rate = np.array([40e9])
    shorter, longer = (
        shape_of(op, b, n, False, 4).duration_ns(rate, 1e4) for b in (size, 2 * size)
    )
    assert 0 < shorter[0] < longer[0]
