"""One run against another."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from oncall.cli.simulate import simulate

from ..command import oncall

JOB = "tp: 2\npp: 1\nduration: 40 s\n"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    scenarios = {
        "base": (JOB, 7),
        "again": (JOB, 8),
        "slow": (f"{JOB}faults:\n  - {{fault: S1, rank: 5, at: 0 s}}\n", 8),
        "larger": (JOB.replace("tp: 2", "tp: 4"), 8),
    }
    found = {}
    for name, (scenario, seed) in scenarios.items():
        (folder / f"{name}.yaml").write_text(scenario, encoding="utf-8")
        simulate(folder / f"{name}.yaml", folder / name, seed)
        found[name] = folder / name / "evidence.oncall"
    return found


def test_what_became_slower_and_which_rank(runs: dict[str, Path]) -> None:
    done = oncall("compare", runs["base"], runs["slow"])
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert any(line.startswith("iteration ") for line in lines)
    assert [line[:14] for line in lines if line.startswith("work of rank")] == ["work of rank 5"]
    assert max(map(len, lines[2:])) <= 80


def test_a_run_that_hangs_is_not_like_one_that_goes_on() -> None:
    """Though what it completed before took no longer."""
    dumps = Path(__file__).resolve().parents[2] / "fixtures/flight_recorder"
    done = oncall("compare", dumps / "healthy", dumps / "not_entered")
    assert "stopped in: not recorded -> AllReduce 9" in done.stdout


def test_what_the_runs_were_started_with(runs: dict[str, Path]) -> None:
    done = oncall("compare", runs["base"], runs["larger"], "--format", "json")
    facts = json.loads(done.stdout)["facts"]
    assert ["tp", "2", "4"] in facts


def test_steps_of_logs(tmp_path: Path) -> None:
    for name, ms in (("before", 400), ("since", 520)):
        (tmp_path / name).mkdir()
        lines = [
            f"[rank1]: iteration {step:8d}/ 1000 | "
            f"elapsed time per iteration (ms): {ms + step % 7}.0 |"
            for step in range(1, 60)
        ]
        (tmp_path / name / "train.log").write_text("\n".join(lines) + "\n")
    done = oncall("compare", tmp_path / "before", tmp_path / "since")
    assert done.returncode == 0 and "+30 %" in done.stdout
    assert f"{tmp_path / 'before'}: 1 rank\n" in done.stdout


def test_what_shows_no_times_is_refused(tmp_path: Path, runs: dict[str, Path]) -> None:
    (tmp_path / "job.log").write_text("torch.OutOfMemoryError: CUDA out of memory.\n")
    done = oncall("compare", runs["base"], tmp_path / "job.log")
    assert done.returncode == 2 and "neither iterations" in done.stderr
