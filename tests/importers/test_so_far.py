"""How far reading is: counted in this process, in others, and of packed files as they lie there."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from oncall.evidence.incident import Incident
from oncall.importers import detect
from oncall.importers.so_far import ReadSoFar

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"


def read(path: Path) -> ReadSoFar:
    so_far = ReadSoFar()
    with Incident.empty() as incident:
        detect.load([path], incident, so_far=so_far)
    return so_far


@pytest.mark.parametrize("packed", [False, True])
def test_a_log_is_counted_as_it_lies_there(tmp_path: Path, packed: bool) -> None:
    text = (FIXTURES / "logs" / "slurm-4711.out").read_bytes()
    log = tmp_path / ("job.log.gz" if packed else "job.log")
    log.write_bytes(gzip.compress(text) if packed else text)
    so_far = read(log)
    assert so_far.total_bytes == log.stat().st_size
    assert so_far.bytes >= so_far.total_bytes


def test_what_a_log_reports_first_is_said_while_the_rest_is_read(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    failures = [f"[rank{rank}]: torch.OutOfMemoryError: CUDA out of memory." for rank in (3, 4)]
    log.write_text("\n".join(["step 1 loss 2.3", *failures, "step 2 loss 2.2"]))
    so_far = read(log)
    assert "CUDA out of memory" in so_far.found
    said = ReadSoFar(9 << 20, 3 << 20, so_far.found, began_s=100.0).phrase(110.0)
    assert said.startswith("3 MiB of 9 MiB, 307 KiB/s, 20 s left; found: torch.OutOfMemoryError")


def test_says_how_much_how_fast_and_how_long() -> None:
    so_far = ReadSoFar(200 << 20, 50 << 20, began_s=100.0)
    assert so_far.phrase(110.0) == "50 MiB of 200 MiB, 5 MiB/s, 30 s left"
    assert so_far.phrase(100.5) == ""  # too early for a rate
    assert ReadSoFar(200 << 20, 0, began_s=100.0).phrase(110.0) == "0 B of 200 MiB, 0 B/s"
    assert ReadSoFar(5, 9, began_s=100.0).phrase(110.0) == "5 B read, joining it"
