"""Shells complete the commands and their options."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


def completed(**asked: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", "oncall.cli.main"],
        env={**os.environ, **asked},
        capture_output=True,
        text=True,
        check=False,
    ).stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_script(shell: str) -> None:
    assert f"_ONCALL_COMPLETE=complete_{shell}" in completed(_ONCALL_COMPLETE=f"source_{shell}")


def test_commands_and_their_options_are_completed() -> None:
    bash = {"_ONCALL_COMPLETE": "complete_bash"}
    assert completed(COMP_WORDS="oncall diag", COMP_CWORD="1", **bash).split() == ["diagnose"]
    option = completed(COMP_WORDS="oncall diagnose --sym", COMP_CWORD="2", **bash)
    assert option.split() == ["--symptom"]
