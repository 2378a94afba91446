"""Run a scheduler's command-line tool and read what it prints."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import Any

from oncall.core.errors import UsageError
from oncall.core.json_text import json_of
from oncall.fleet.outcome import last_line

_MOST_S = 30.0


class ToolFailed(UsageError):
    """The tool ended with an error; `said` is the last line of its stderr."""

    def __init__(self, tool: str, said: str) -> None:
        self.said = said
        super().__init__(f"{tool}: {said}")


def run_tool(argv: Sequence[str]) -> str:
    """The stdout of a tool on PATH. Raises ToolFailed, or UsageError if it cannot be run."""
    tool = argv[0]
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=_MOST_S, check=False
        )
    except FileNotFoundError:
        raise UsageError(f"{tool} not found on this machine: run oncall where it is") from None
    except OSError as error:
        raise UsageError(f"{tool}: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise UsageError(f"{tool} did not answer within {_MOST_S:g} s") from None
    if done.returncode:
        said = last_line(done.stderr.decode(errors="replace"))
        raise ToolFailed(tool, said or f"ended with status {done.returncode}")
    return done.stdout.decode(errors="replace")


def run_json_tool(argv: Sequence[str]) -> Any:
    """What a tool prints as JSON. Raises as `run_tool` does, or UsageError if it is not JSON."""
    try:
        return json_of(run_tool(argv))
    except ValueError:
        raise UsageError(f"{' '.join(argv[:3])}: printed no JSON") from None
