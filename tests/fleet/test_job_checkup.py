"""`oncall doctor --job`: what could not be seen is not taken for well, nor for wrong."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from oncall.cli.commands import app
from oncall.fleet.checkup import job_checkup
from oncall.fleet.checkup.job_checkup import JobCheckup, check_job_here
from oncall.fleet.outcome import Outcome
from oncall.node.processes import training_processes
from oncall.node.processes.training_processes import TrainingProcess


def _doctor(*arguments: str) -> tuple[int, dict[str, Any]]:
    shown = CliRunner().invoke(app, ["doctor", *arguments, "--job", "llama", "--format", "json"])
    return shown.exit_code, json.loads(shown.stdout)


def test_an_environment_that_may_not_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rank = TrainingProcess(os.getpid(), "llama", 3)  # known by its ring
    monkeypatch.setattr(training_processes, "_by_rings", lambda _: [rank])
    monkeypatch.setattr(training_processes, "_environment", lambda _: None)
    (found,) = check_job_here(tmp_path, "llama", "gpu1")
    assert found.ranks == (3,)
    assert [(check.name, check.state) for check in found.checks] == [("environment", "unknown")]
    code, shown = _doctor()
    assert (code, shown["well"]) == (3, False)


@pytest.mark.parametrize(
    ("kind", "code"), [("ok", 0), ("no-data", 0), ("timeout", 3), ("refused", 3)]
)
def test_a_host_that_was_not_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Any, code: int
) -> None:
    (tmp_path / "gpu1").mkdir()
    well = JobCheckup("llama", (0,), 1, ("gpu1",), {}, ())

    async def checked(*_: object) -> tuple[list[JobCheckup], Mapping[str, Outcome]]:
        return [well], {"gpu1": Outcome("gpu1", "ok"), "gpu2": Outcome("gpu2", kind)}

    monkeypatch.setattr(job_checkup, "check_job", checked)
    seen, shown = _doctor(f"local:{tmp_path}/*")
    assert (seen, shown["well"]) == (code, code == 0)
