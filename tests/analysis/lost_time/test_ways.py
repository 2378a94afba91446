"""What holds for every way to find who costs a job time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from oncall.analysis.lost_time.judgement import Declined, Entry
from oncall.analysis.lost_time.limits import Limits
from oncall.analysis.lost_time.ways import Evidence, Way

LATE = Entry("own", (3,), 0.1, 0.09, 0.11, 12, 1e9, 0, "waits")


@pytest.mark.parametrize(("gain", "named"), [(0.01, False), (0.08, True), (None, True)])
def test_whom_others_wait_for_without_a_gain_is_off_the_critical_path(
    gain: float | None, named: bool
) -> None:
    """`gain`: by how much replayed iterations are shorter without it; None: nothing is replayed."""
    books = None if gain is None else SimpleNamespace(shares=lambda _gains: np.array([[gain, 0]]))
    evidence: Any = SimpleNamespace(costs=books, limits=Limits())
    found = Way("waits", lambda _evidence: LATE).ask(cast(Evidence, evidence))
    assert found == (LATE if named else Declined("whom others wait for is off the critical path"))
