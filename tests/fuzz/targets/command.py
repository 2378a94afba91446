"""`oncall diagnose FILE` as a person runs it, on a damaged file: a process and its exit code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from oncall.core.errors import ExitCode

from ..registry import file_of, target

_FIXTURES = Path(__file__).parents[3] / "fixtures" / "flight_recorder"
_ALLOWED = {
    *(ExitCode.HEALTHY, ExitCode.FINDING, ExitCode.BAD_INPUT, ExitCode.TOO_LITTLE_COVERAGE),
}
_MOST_S = 100  # for a start and a diagnosis, on a machine that does other work too


def _recordings() -> list[bytes]:
    return [path.read_bytes() for path in sorted(_FIXTURES.glob("*/*")) if path.is_file()]


@target(_recordings)
def diagnose_command(data: bytes) -> None:
    """An exit code of the contract, and no traceback."""
    with file_of(data, "fr_trace_rank_0") as path:
        done = subprocess.run(
            [sys.executable, "-m", "oncall.cli.main", "diagnose", str(path), "--format", "json"],
            capture_output=True,
            text=True,
            timeout=_MOST_S,
            check=False,
        )
    assert done.returncode in _ALLOWED, (done.returncode, done.stderr[-500:])
    assert "Traceback" not in done.stderr and "internal error" not in done.stderr, done.stderr[
        -500:
    ]
    # What failed has one reason to say; what did not has its diagnosis.
    assert done.stderr.strip() if done.returncode == ExitCode.BAD_INPUT else done.stdout
