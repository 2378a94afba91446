"""`benchmarks/gpu/run` says what it would do and, where there is no GPU, never shows a figure."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

RUN = Path(__file__).parents[1] / "benchmarks" / "gpu" / "run"
STEPS = ("environment", "overhead", "faults", "readings")


def ran(*words: str | Path, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run it, with programs of `path` before the machine's."""
    found = f"{path or ''}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": found}
    return subprocess.run(
        ["sh", RUN, *words], capture_output=True, check=False, text=True, env=environment
    )


@pytest.mark.parametrize("dry", [True, False])
def test_the_plan_lists_each_step_and_its_limit(tmp_path: Path, dry: bool) -> None:
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\necho '| Driver Version: 580.1 |'\n")
    smi.chmod(0o755)
    said = ran(tmp_path / "out", "--plan", *["--dry"] * dry, path=tmp_path)
    lines = said.stdout.splitlines()
    assert said.returncode == 0
    assert [line.split()[1] for line in lines] == list(STEPS)
    assert all("at most" in line for line in lines)
    assert all(("WITHOUT GPU" in line) == dry for line in lines)
    assert not (tmp_path / "out").exists()


def test_a_dry_run_is_labelled_and_says_what_was_not_run(tmp_path: Path) -> None:
    out = tmp_path / "out"
    said = ran(out, "--dry", "--only", "overhead", "readings")
    report = (out / "report.md").read_text()
    assert report.startswith("# DRY RUN: no figure here is of a GPU")
    assert "NO GPU IS READ. The source says" in report
    assert "**not run: no torch; name a Python that has it with --python**" in report
    assert "## faults\n\n**not run**" in report
    assert said.returncode == 1  # something that was asked for was not run
    assert ran(out, "--dry").returncode == 2  # what is there is not written over
