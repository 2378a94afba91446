"""Dumps of real PyTorch jobs whose truth is known and that lie beside the project."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from oncall.cli.commands import app

CASES = Path(__file__).parents[4] / "shared" / "data" / "flight_recorder_torch"


@pytest.mark.skipif(not CASES.is_dir(), reason="the dumps with their truth are not here")
@pytest.mark.parametrize(
    ("job", "causes"),
    [
        ("ddp_healthy", []),
        ("ddp_eval", []),
        ("ddp_slow", [("S1", {1})]),
        ("ddp_loader_host", [("S1", {2, 3})]),
        ("ddp_not_entered", [("STANDSTILL", {2})]),
    ],
)
def test_the_root_causes_in_dumps_of_a_real_job(job: str, causes: list[object]) -> None:
    said = CliRunner().invoke(app, ["diagnose", str(CASES / job), "--format", "json"])
    found = json.loads(said.stdout)["findings"]
    roots = [finding for finding in found if not finding["explained_by"]]
    assert [(root["verdict"], {who["rank"] for who in root["blame"]}) for root in roots] == causes
