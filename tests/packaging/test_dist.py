"""What `make wheels` and `make tarball` left under dist/: installed where nothing else is."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

DIST = Path(__file__).parents[2] / "dist"
pytestmark = pytest.mark.slow


def _only(pattern: str, made_by: str) -> Path:
    found = [*DIST.glob(pattern)]
    if not found:
        pytest.skip(f"no dist/{pattern}: `{made_by}` makes it")
    return found[0]


def _run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_runs_in_an_environment_of_its_own(tmp_path: Path) -> None:
    wheel = _only("oncall_console-*.manylinux_2_17_x86_64.whl", "make wheels")
    _run(sys.executable, "-m", "venv", tmp_path)
    _run(tmp_path / "bin" / "pip", "install", "--quiet", wheel)
    oncall = tmp_path / "bin" / "oncall"
    assert _run(oncall, "--version").startswith("oncall ")
    assert Path(_run(oncall, "hooks", "path").strip()).is_relative_to(tmp_path)
    assert "demo" in _run(oncall, "demo", "--help")


def test_the_tarball_answers_as_a_node(tmp_path: Path) -> None:
    tarball = _only("oncall-node-*-python3.11-linux-x86_64.tar.gz", "make tarball")
    with tarfile.open(tarball) as archive:
        archive.extractall(tmp_path)
    (oncall,) = tmp_path.glob("*/bin/oncall")
    assert Path(_run(oncall, "hooks", "path").strip()).is_relative_to(tmp_path)
    folders = ("--data-dir", tmp_path / "data", "--run-dir", tmp_path / "run")
    _run(oncall, "collect", "--once", *folders)
    assert '"error"' not in _run(oncall, "node", "query", '{"ask":"hello"}', *folders)
