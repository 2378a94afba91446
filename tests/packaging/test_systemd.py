"""The systemd units: systemd reads them without a complaint, and they start what there is."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from oncall.cli.commands import app

UNITS = sorted((Path(__file__).parents[2] / "packaging" / "systemd").glob("*.service"))


def _setting(unit: Path, name: str) -> str:
    lines = [line for line in unit.read_text().splitlines() if line.startswith(f"{name}=")]
    assert len(lines) == 1, name
    return lines[0].partition("=")[2]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_the_command_has_the_options_that_the_unit_gives(unit: Path) -> None:
    _, command, *options = shlex.split(_setting(unit, "ExecStart"))
    assert command in unit.name
    printed = CliRunner().invoke(app, [command, "--help"]).output
    for option in options:
        if option.startswith("--"):
            assert option in printed


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_no_unit_may_do_more_than_a_service_does(unit: Path) -> None:
    assert _setting(unit, "SystemCallFilter") == "@system-service"
    assert _setting(unit, "NoNewPrivileges") == "yes"
    assert _setting(unit, "UMask") == "0027"


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not here")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_reads_the_unit(unit: Path, tmp_path: Path) -> None:
    here = tmp_path / unit.name.replace("@", "@job")
    program = shlex.split(_setting(unit, "ExecStart"))[0]
    here.write_text(unit.read_text().replace(program, "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(here)], capture_output=True, text=True
    )
    assert [line for line in done.stderr.splitlines() if unit.stem in line] == []
