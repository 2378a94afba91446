"""Group calls of interleaved 1F1B: whatever a stage sends its neighbour receives, in that order."""

from __future__ import annotations

import numpy as np
import pytest

from oncall.analysis.tasks.schedules import INTERLEAVED, interleaved_exchanges, task_order

SHAPES = [(2, 2, 2), (2, 4, 3), (4, 8, 2), (4, 12, 2), (8, 8, 2), (8, 16, 3)]


@pytest.mark.parametrize(("stages", "micro_batches", "chunks"), SHAPES)
def test_what_is_sent_is_received(stages: int, micro_batches: int, chunks: int) -> None:
    mine = [interleaved_exchanges(stages, s, micro_batches, chunks) for s in range(stages)]
    for stage, found in enumerate(mine):
        for forward, other in ((True, mine[(stage + 1) % stages]), (False, mine[stage - 1])):
            sent = int((found.send & (found.forward == forward)).sum())
            assert sent == int((~other.send & (other.forward == forward)).sum())


@pytest.mark.parametrize(("stages", "micro_batches", "chunks"), SHAPES)
def test_nothing_is_sent_before_its_task_nor_computed_before_its_input(
    stages: int, micro_batches: int, chunks: int
) -> None:
    for stage in range(stages):
        found = interleaved_exchanges(stages, stage, micro_batches, chunks)
        order = task_order(
            INTERLEAVED, stages, stage, micro_batches, chunks, exchanged_together=True
        )
        for backward in (False, True):
            way = found.forward != backward
            senders = np.flatnonzero(order.sends & (order.backward == backward))
            takers = np.flatnonzero(order.receives & (order.backward == backward))
            assert (found.after[found.send & way] > senders).all()
            assert (found.after[~found.send & way] <= takers).all()


def test_other_calls_are_not_taken_for_them() -> None:
    found = interleaved_exchanges(4, 1, 8, 2)
    group = np.cumsum(np.diff(found.after, prepend=-1) != 0)
    assert found.are(found.send, group)
    assert not found.are(~found.send, group)
    assert not found.are(found.send, np.arange(len(group)))
    assert not found.are(found.send[1:], group[1:])
