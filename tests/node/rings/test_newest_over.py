"""Which operations are known to be over: by communicator and kind, across a restart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oncall.node.rings.operations import OPERATION, NewestOver


def _operations(*described: tuple[int, bool, int]) -> Any:
    """Of communicator, whether point-to-point, number."""
    rows = np.zeros(len(described), OPERATION)
    for row, (communicator, point_to_point, number) in zip(rows, described, strict=True):
        row["communicator"], row["operation"] = communicator, number
        row["point_to_point"] = point_to_point
    return rows


def _after(*ended: tuple[int, bool, int]) -> NewestOver:
    over = NewestOver()
    for one in ended:
        over.saw(_operations(one))
    return over


def test_communicators_and_kinds_are_kept_apart() -> None:
    over = _after((1, False, 7), (1, True, 5), (2, False, 9), (1, False, 6))
    last = _operations((1, False, 7), (1, False, 8), (1, True, 6), (2, False, 9), (3, False, 1))
    assert over.covers(last).tolist() == [True, False, False, True, False]
    again = NewestOver(over.packed)
    assert again.covers(last).tolist() == over.covers(last).tolist()


@pytest.mark.parametrize("packed", [b"", b"x", bytes(8), bytes(24)])
def test_a_damaged_bookmark_is_ignored(packed: bytes) -> None:
    assert not NewestOver(packed).covers(_operations((1, False, 1))).any()
    assert NewestOver(packed).packed == b""


def test_no_more_is_kept_than_boards_are() -> None:
    over = _after(*((number, False, number) for number in range(1, 5_001)))
    assert len(over.packed) == 16 * 4_096
    assert over.covers(_operations((1, False, 1), (5_000, False, 5_000))).tolist() == [False, True]
