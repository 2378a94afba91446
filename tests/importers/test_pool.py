"""Reading on all cores."""

from __future__ import annotations

import subprocess
import sys

_IN_A_CONSOLE = """
import sys
from types import SimpleNamespace
from oncall.importers.pool import on_cores

sys.stderr = SimpleNamespace(fileno=lambda: -1, write=len, flush=list)
print(*on_cores(len, [["a"], ["b", "c"]], 2, "place", "lines"))
"""


def test_processes_start_where_standard_error_is_a_console() -> None:
    """As in the console, whose screen takes what is printed. In a process of its own: which helper
    processes run is known once in each."""
    program = [sys.executable, "-c", _IN_A_CONSOLE]
    run = subprocess.run(program, capture_output=True, text=True, check=False)
    assert run.stdout == "1 2\n", run.stderr
