"""Logs whose truth is known and that lie beside the project, where they are there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).parents[3]
CASES = TOP.parent / "shared" / "data" / "logs"


@pytest.mark.skipif(not CASES.is_dir(), reason="the logs with their truth are not here")
def test_headlines_of_the_shared_logs() -> None:
    said = subprocess.run(
        [sys.executable, str(TOP / "benchmarks" / "accuracy_logs.py"), str(CASES)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    counts = {
        name: (int(got), int(of))
        for name, got, of in re.findall(r"^(\w+) +(\d+)/(\d+)", said, re.MULTILINE)
    }
    assert counts["recognised"][0] == counts["recognised"][1]
    assert counts["kind"][0] >= 0.9 * counts["kind"][1]
    assert counts["who"][0] >= 0.9 * counts["who"][1]
    assert counts["alarms"][0] == 0
