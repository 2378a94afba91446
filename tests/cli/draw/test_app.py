"""`oncall draw` and `oncall diagnose --explain`: curves and maps by the real commands."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from oncall.cli.commands import app
from oncall.evidence.incident import Incident


def run(*arguments: str | Path) -> tuple[int, str]:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return done.exit_code, done.output


def test_the_operation_of_the_finding_is_drawn_with_its_culprit(congestion: Path) -> None:
    code, output = run("draw", congestion)
    assert code == 0
    assert "Sends, call" in output
    assert [line.split()[2] for line in output.splitlines() if line.startswith("▶ rank")] == ["2"]
    assert max(map(len, output.splitlines())) <= 80


def test_pictures_are_written(congestion: Path, tmp_path: Path) -> None:
    for name, options in (("curves.svg", []), ("map.svg", ["--map"])):
        code, output = run("draw", congestion, "-o", tmp_path / name, *options)
        assert (code, output.strip()) == (0, str(tmp_path / name))
        assert (tmp_path / name).read_text().startswith("<svg ")


@pytest.mark.skipif(shutil.which("rsvg-convert") is None, reason="rsvg-convert is not installed")
def test_a_png_is_made_by_rsvg_convert(congestion: Path, tmp_path: Path) -> None:
    code, _ = run("draw", congestion, "-o", tmp_path / "curves.png")
    assert code == 0
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_explain_shows_the_curves_of_a_saved_incident(congestion: Path, tmp_path: Path) -> None:
    code, output = run("diagnose", congestion, "--explain", "--save", tmp_path / "again.oncall")
    assert code == 1
    assert "\nTraffic\n" in output and "▶ rank 2 " in output
    assert "Traffic between ranks in Sends" in output
    _, again = run("draw", tmp_path / "again.oncall")
    assert again == run("draw", congestion)[1]
    assert "### Traffic" in run("diagnose", congestion, "--explain", "--format", "markdown")[1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--seq", "3"], "--seq needs --comm"),
        (["--comm", "dp"], "expected a communicator hash"),
        (["--comm", "0x1"], "communicator 0x1 has no traffic"),
        (["--resolution", "0s"], "must be positive"),
        (["-o", "x.pdf"], "must end in .svg or .png"),
    ],
)
def test_what_cannot_be_drawn_is_refused(
    congestion: Path, options: list[str], message: str
) -> None:
    code, output = run("draw", congestion, *options)
    assert code == 2
    assert message in output


def test_an_incident_without_traffic_says_so(tmp_path: Path) -> None:
    with Incident.empty() as nothing:
        nothing.append("ops", {"job": ["j"], "comm": [1], "seq": [0], "rank": [0]})
        nothing.save(tmp_path / "none.oncall")
    code, output = run("draw", tmp_path / "none.oncall")
    assert code == 2
    assert "no traffic recorded" in output
