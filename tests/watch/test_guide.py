"""What docs/guide/watch.md shows of a watch is what a watch prints, but for times and places."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

_TOP = Path(__file__).parents[2]
_GUIDE = (_TOP / "docs" / "guide" / "watch.md").read_text()
_EAGER = '[watch]\nevery = "1s"\nconfirm = "1s"\n'
_OTEL = '[watch.notify.otel]\nkind = "otlp"\nurl = "http://collector:4318"\n'


@pytest.mark.parametrize(
    ("configured", "introduced_by"),
    [
        ("", ["whose job fails:", "And what arrives:"]),
        (_OTEL, ["as `--dry-run` shows it:"]),
    ],
    ids=["watch", "otlp"],
)
def test_a_watch_prints_what_the_guide_shows(
    configured: str, introduced_by: list[str], tmp_path: Path
) -> None:
    (tmp_path / "llama").mkdir()
    shutil.copy(_TOP / "fixtures" / "logs" / "slurm-4711.out", tmp_path / "llama")
    (tmp_path / "config.toml").write_text(_EAGER + configured)
    command = [
        *(sys.executable, "-m", "oncall.cli.main", "watch", "--logs", "llama/slurm-4711.out"),
        *("--config", "config.toml", "--dry-run"),
    ]
    printed = []
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as watch:
        assert watch.stdout is not None
        for line in watch.stdout:
            printed.append(line)
            if "  opened llama-" in line:
                watch.terminate()
    seen = iter(map(_without_times, "".join(printed).splitlines()))
    # Notifications are printed as they are sent, after the line that says so.
    for words in introduced_by:
        for line in _block(words):
            assert _without_times(line) in seen, line


def _block(after: str) -> Iterator[str]:
    """The lines of the indented block that these words introduce, but for a command."""
    _, found, rest = _GUIDE.partition(f"{after}\n\n")
    assert found
    shown = rest.partition("\n\n")[0].splitlines()
    return (line for line in shown if not line.lstrip().startswith("$ "))


def _without_times(line: str) -> str:
    return re.sub(r"\d{8}T\d{6}Z|\d\d:\d\d:\d\d|/\S+/", "...", line).strip()
