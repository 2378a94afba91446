"""The systemd unit: systemd reads it without a complaint, and it starts what there is."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from oncall.cli.commands import app

UNIT = Path(__file__).parents[2] / "packaging" / "systemd" / "oncall-collect.service"


def _setting(name: str) -> str:
    lines = [line for line in UNIT.read_text().splitlines() if line.startswith(f"{name}=")]
    assert len(lines) == 1, name
    return lines[0].partition("=")[2]


def test_the_command_has_the_options_that_the_unit_gives() -> None:
    _, command, *options = shlex.split(_setting("ExecStart"))
    assert command == "collect"
    told = CliRunner().invoke(app, ["collect", "--help"]).output
    for option in options:
        if option.startswith("--"):
            assert option in told


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not here")
def test_systemd_reads_the_unit(tmp_path: Path) -> None:
    here = tmp_path / UNIT.name
    program = shlex.split(_setting("ExecStart"))[0]
    here.write_text(UNIT.read_text().replace(program, "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(here)], capture_output=True, text=True
    )
    assert [line for line in done.stderr.splitlines() if UNIT.stem in line] == []
