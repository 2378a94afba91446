"""A live job for each class of fault, as a person starts it: the verdict is the truth."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from typer.testing import CliRunner

from oncall.cli.commands import app
from oncall.demo.faults import FAULTS

_MOST_S = 200
_QUICK = ("H1",)
_DEMO = (sys.executable, "-m", "oncall.cli.main", "demo")


@pytest.fixture
def folder(standin_job: None) -> Iterator[Path]:  # noqa: ARG001
    """An empty folder, of a path short enough for a socket in it; nothing may be left there or
    running with it."""
    with TemporaryDirectory() as name:
        yield Path(name)
        assert not list(Path(name).iterdir())
        assert not _running_with(name)


def _environment(folder: Path) -> dict[str, str]:
    return os.environ | {"TMPDIR": str(folder)}


def _running_with(text: str) -> list[int]:
    """Processes whose environment holds `text`, but for this one."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if text in (place / "environ").read_text(errors="replace"):
                found.append(int(place.name))
        except OSError:
            pass  # another user's, or just gone
    return [pid for pid in found if pid != os.getpid()]


@pytest.mark.alone  # ranks that wait for a core are slow ranks, and reported as such
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(fault.name, marks=() if fault.name in _QUICK else pytest.mark.slow)
        for fault in FAULTS
    ],
)
def test_the_diagnosis_is_the_truth(name: str, folder: Path) -> None:
    done = subprocess.run(
        [*_DEMO, "--fault", name],
        env=_environment(folder),
        capture_output=True,
        text=True,
        timeout=_MOST_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    truth, found = re.findall(r"^(?:truth|found): (.*)$", done.stdout, re.MULTILINE)
    assert truth.split()[0] == name
    assert "nodes" not in found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_nothing(number: signal.Signals, folder: Path) -> None:
    with subprocess.Popen(
        _DEMO, env=_environment(folder), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            if "under the hooks" in line:
                break
        assert len(_running_with(str(folder))) > 8  # ranks and collectors
        demo.send_signal(number)
        _, said = demo.communicate(timeout=_MOST_S)
    assert demo.returncode == 130
    assert said == "oncall: interrupted\n"


@pytest.mark.slow
def test_what_is_kept_can_be_diagnosed_again(folder: Path) -> None:
    kept = folder / "kept"
    demo = [*_DEMO, "--fault", "H2", "--nodes", "2", "--keep", str(kept)]
    subprocess.run(demo, capture_output=True, timeout=_MOST_S, check=True)
    assert (kept / "logs" / "rank-0.log").read_text().startswith("step 1:")
    shards = [*_DEMO[:-1], "diagnose", "--hosts", f"local:{kept}/node*", "--since", "1h"]
    again = subprocess.run(
        [*shards, "--param", "hang.hang_after=1s", "--format", "json"],
        capture_output=True,
        text=True,
        timeout=_MOST_S,
        check=False,
    )
    shutil.rmtree(kept)
    assert again.returncode == 1, again.stderr
    assert '"verdict": "H2"' in again.stdout


def test_faults_are_listed() -> None:
    shown = CliRunner().invoke(app, ["demo", "--list"])
    assert shown.exit_code == 0
    assert [line.split()[0] for line in shown.stdout.splitlines()] == [f.name for f in FAULTS]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--fault", "H9"], "there are H1"),
        (["--ranks", "6"], "multiple of 4"),
        (["--nodes", "0"], "--nodes 0"),
    ],
)
def test_what_cannot_be_shown_is_refused(options: list[str], says: str) -> None:
    shown = CliRunner().invoke(app, ["demo", *options])
    assert shown.exit_code == 2
    assert says in shown.stderr


def test_a_full_folder_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    shown = CliRunner().invoke(app, ["demo", "--keep", str(tmp_path)])
    assert shown.exit_code == 2
    assert "not an empty folder" in shown.stderr
    assert (tmp_path / "mine").read_text() == "precious"


def test_without_the_c_parts_it_says_how_to_build_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oncall.__path__", ["/nowhere"])
    shown = CliRunner().invoke(app, ["demo"])
    assert shown.exit_code == 2
    assert "was not found" in shown.stderr and "make native" in shown.stderr
