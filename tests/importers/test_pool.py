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

_LEFT = """
import os
from oncall.importers.pool import on_cores

reading = on_cores(len, [["a"], ["b", "c"]], 2, "place", "lines")
next(reading)
os._exit(0)
"""


def test_processes_start_where_standard_error_is_a_console() -> None:
    """As in the console, whose screen takes what is printed. In a process of its own: which helper
    processes run is known once in each."""
    program = [sys.executable, "-c", _IN_A_CONSOLE]
    run = subprocess.run(program, capture_output=True, text=True, check=False)
    assert run.stdout == "1 2\n", run.stderr


def test_processes_end_with_the_one_that_started_them() -> None:
    """As when a console is left while it reads. They hold its output open as long as they live."""
    program = [sys.executable, "-c", _LEFT]
    run = subprocess.run(program, capture_output=True, timeout=30, check=False)
    assert run.returncode == 0 and not run.stderr
