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


@pytest.mark.parametrize("packed", [b"", b"x", bytes(8), bytes(24)])
def test_a_damaged_bookmark_is_ignored(packed: bytes) -> None:
    assert not NewestOver(packed).covers(_operations((1, False, 1))).any()
    assert NewestOver(packed).packed == b""
