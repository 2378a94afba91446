"""The job at a glance, as lines of pieces."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from oncall.tui.screens.incident.overview import Glance, Pieces, narrow, roomy
from oncall.views.night import LoggedLine
from oncall.views.rates.buckets import Series
from oncall.views.snapshot import RankState

from ..snapshots import (
    FAULT_NS,
    FIRST_NS,
    LAST_NS,
    hang_snapshot,
    healthy_snapshot,
    large_snapshot,
)


def text(line: Pieces) -> str:
    return "".join(piece for piece, _ in line)


def cells(lines: list[Pieces], state: RankState) -> str:
    """What is drawn in the colour of a state, without the legend."""
    return "".join(
        piece for line in lines if text(line).startswith("ranks") or not text(line).strip("█▪░·▫▲ ")
        for piece, style in line if style == f"state {int(state)}"
    )  # fmt: skip


def stopped() -> Series:
    at_ns = np.linspace(FIRST_NS, LAST_NS, 100).astype(np.int64)
    value = np.where(at_ns < FAULT_NS, 300.0, 0.0)
    return Series("completed operations", "ops/s", at_ns, value, (290.0, 310.0))


@pytest.mark.parametrize("width", [20, 40, 76, 100])
@pytest.mark.parametrize("snapshot", [hang_snapshot, healthy_snapshot, large_snapshot])
def test_nothing_is_wider_than_its_room(width: int, snapshot: object) -> None:
    seen = snapshot()  # type: ignore[operator]
    log = tuple(LoggedLine(FAULT_NS + n, "rank 3", "text " * 30, n % 2 == 0) for n in range(40))
    glance = Glance(seen, (stopped(), replace(stopped(), name="iteration time")), log, FAULT_NS)
    for lines in (narrow(glance, width), roomy(glance, width, 36)):
        curves = [
            line for line in lines if not any("completed operations" in one for one, _ in line)
        ]
        assert max(len(text(line)) for line in curves) <= max(width, 34)
