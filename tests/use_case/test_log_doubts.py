"""Why a log without a finding is not healthy, and when it is: what its end shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncall.evidence.incident import Incident
from oncall.importers import detect
from oncall.use_case.doubt import why_logs_say_too_little

STEPS = "".join(f"step {n} loss 2.{n}\n" for n in range(5))
OF_RANKS = "".join(
    f"[rank{rank}]: step {n} loss 2.{n}\n"
    for n in range(5)
    for rank in range(4)
    if rank != 3 or n < 3
)


@pytest.mark.parametrize(
    ("text", "doubt"),
    [
        (STEPS, "the log ends after step 4"),
        (
            STEPS + "lease: waiting for shard 12\n",
            "the log ends after step 4; its last line: lease: waiting for shard 12",
        ),
        (OF_RANKS, "the log ends after step 4; the steps of rank 3 end before the others'"),
        ("retrying: nodes are busy\n", "steps of training; its last line: retrying: nodes are bus"),
        (STEPS + "training finished\n", ""),
        (STEPS + "training finished\nERROR: metrics not sent\n", "training ended, but"),
        (STEPS + "training finished\nERROR: lost\nexit code 0\n", "error that no rule knows"),
        (STEPS + "training finished\ncp: /ckpt: Disk quota exceeded\n", "error that no rule knows"),
        (STEPS + "Failed requests:     0\n", "the log ends after step 4; its last line: Failed"),
        ("5512.0   python  COMPLETED      0:0   gpu[001-004]\n", ""),
        ("# Out of bounds values : 0 OK\n", ""),
        ("# Out of bounds values : 0 OK\n[rank0]: KeyError: 1\n", "neither a fault nor steps"),
    ],
)
def test_what_the_end_of_a_log_shows(text: str, doubt: str, tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text(text)
    with Incident.empty() as incident:
        detect.load([tmp_path], incident, "job")
        said = why_logs_say_too_little(incident)
    assert said == doubt if not doubt else doubt in (said or "")
