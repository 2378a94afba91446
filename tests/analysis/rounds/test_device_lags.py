"""Whether calls of hosts show what their devices do."""

from __future__ import annotations

from typing import Any

import pytest
from tests.sql import found

from oncall.evidence import Incident

MS = 1_000_000


def lag(end_after_ns: int, **more: Any) -> tuple[float | None, bool]:
    """Of ten collectives of two ranks, the second of which calls 5 ms later."""
    with Incident.empty() as incident:
        incident.append(
            "ops",
            {"job": "j", "comm": 1, "kind": "coll", "op": "AllReduce"}
            | {"seq": [k for k in range(10) for _ in range(2)], "rank": [0, 1] * 10}
            | {"enqueued_ns": [k * 50 * MS + rank * 5 * MS for k in range(10) for rank in range(2)]}
            | {"ended_ns": [k * 50 * MS + 5 * MS + end_after_ns for k in range(10) for _ in "ab"]}
            | more,
        )
        ((lag_ns, hidden),) = found(incident, "device_lags", "lag_ns, hidden")
        return lag_ns, hidden


@pytest.mark.parametrize(("end_after_ms", "hidden"), [(60, False), (400, True)])
def test_ends_long_after_the_last_call_show_a_queue(end_after_ms: int, hidden: bool) -> None:
    assert lag(end_after_ms * MS) == (end_after_ms * MS, hidden)


def test_durations_show_the_device_however_far_behind() -> None:
    assert not lag(400 * MS, duration_ns=2 * MS)[1]
