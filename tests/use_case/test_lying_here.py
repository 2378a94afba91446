"""What `oncall` alone offers in a folder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from oncall.evidence.incident import Incident
from oncall.use_case.lying_here import offers

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def commands(folder: Path) -> list[tuple[str, str]]:
    return [
        (one.command, one.what) for one in offers(folder, None) if "stacks --job" not in one.command
    ]


def test_incidents_dumps_and_logs_each_with_their_command(here: Path) -> None:
    shutil.copytree(FIXTURES / "flight_recorder" / "not_entered", here / "dumps")
    shutil.copy(FIXTURES / "logs" / "slurm-4711.out", here / "it's a log.out")
    (here / "notes.md").write_text("NCCL watchdog timeout, see train.py")
    (here / "watch.c").write_text("/* prints: NCCL WARN Timeout */")
    with Incident.empty() as incident:
        incident.save(here / "night.oncall")
    assert commands(here) == [
        ("oncall open night.oncall", "a saved incident"),
        ("oncall diagnose 'it'\"'\"'s a log.out'", "1 file: job logs"),
        ("oncall diagnose dumps", "8 files: PyTorch Flight Recorder dumps"),
    ]


def test_files_of_one_recording_are_read_together(here: Path) -> None:
    for one in (FIXTURES / "flight_recorder" / "not_entered").iterdir():
        shutil.copy(one, here)
    assert commands(here) == [("oncall diagnose .", "8 files: PyTorch Flight Recorder dumps")]


def test_what_cannot_be_read_is_passed_over(here: Path) -> None:
    os.mkfifo(here / "pipe")
    (here / "gone").symlink_to("nowhere")
    (here / "empty").mkdir()
    assert commands(here) == []


def test_oncall_alone_says_so(here: Path) -> None:
    shutil.copy(FIXTURES / "logs" / "slurm-4711.out", here)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SLURM_")}
    environment |= {"XDG_CONFIG_HOME": str(here), "XDG_CONFIG_DIRS": str(here)}
    done = subprocess.run(
        [Path(sys.executable).with_name("oncall")],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "For a job on other machines use --hosts" in done.stderr
    assert re.search(r"oncall diagnose slurm-4711.out  +1 file: job logs", done.stderr)
