"""Whether a job is done, by its log."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.sql import found

from oncall.evidence.incident import Incident
from oncall.importers.detect import load

STEP = "step {}/{} loss 2.1 time: 1.2 s\n"
DONE = "Training finished.\n"


def steps(first: int, last: int, of: int = 5000) -> str:
    return "".join(STEP.format(step, of) for step in range(first, last + 1))


@pytest.mark.parametrize(
    ("text", "finished"),
    [
        (steps(1, 9), False),
        (steps(1, 9, of=9), True),
        (steps(1, 9) + DONE, True),
        (steps(1, 9) + DONE + steps(9, 9), True),  # the bar, drawn once more
        (steps(1, 9) + DONE + steps(1, 5), False),  # a second training in the log
        (steps(1, 9) + DONE + steps(1, 5) + DONE, True),
    ],
)
def test_what_says_that_a_job_is_done(text: str, finished: bool, tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(text)
    with Incident.empty() as incident:
        load([tmp_path / "train.log"], incident, "job")
        rows = found(incident, "log_progress", "finished")
    assert rows == [(finished,)]
