"""Who is elsewhere, where the others wait in calls that have no frame of their own."""

from __future__ import annotations

import pytest
from tests.sql import found

from oncall.evidence import Incident

RING = ["step at ring.py:287", "train at job.py:88"]
BATCH = ["next_batch at data.py:12", "train at job.py:86"]
BESIDE = ["scale at ring.py:301", "train at job.py:88"]


@pytest.mark.parametrize(
    ("frames", "state", "elsewhere"),
    [
        ([RING, RING, RING, BATCH], "idle", [(3, "3 in one place (step at ring.py:287)")]),
        ([RING, RING, RING, BATCH], "active", []),  # they compute there
        ([RING, RING, BESIDE, BATCH], "idle", []),  # no more than half are in one place
        ([RING] * 4, "idle", []),
    ],
)
def test_most_that_rest_at_one_line_may_wait_there(
    incident: Incident, frames: list[list[str]], state: str, elsewhere: list[tuple[int, str]]
) -> None:
    ranks = list(range(len(frames)))
    about = {"job": "j", "is_main": True, "thread": "1", "state": state}
    incident.append("thread_stacks", about | {"rank": ranks, "pid": ranks, "frames": frames})
    assert found(incident, "odd_stacks", "rank, elsewhere", "doubted") == elsewhere
