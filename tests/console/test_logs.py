"""The console on a log alone: it names the finding, and has nothing to draw."""

from __future__ import annotations

from pathlib import Path

from oncall.console.evidence_queries import GetLogLines
from oncall.console.opening import open_recording
from oncall.console.queries import GetSnapshot

FIXTURE = Path(__file__).parents[2] / "fixtures" / "logs" / "slurm-4711.out"


def test_a_log_opens_in_the_console() -> None:
    session = open_recording([FIXTURE], None)
    try:
        snapshot = session.ask(GetSnapshot())
        assert [one.verdict for one in snapshot.diagnosis.findings] == ["FIRST_ERROR"]
        [error] = [one for one in session.ask(GetLogLines(None)) if one.source == "rank 5"]
        # The line has no stamp: its time is that of one before it.
        assert (error.text, error.clock) == (
            "KeyError: 'tokens' (pretrain.py:204)",
            "~02:44:10 UTC",
        )
    finally:
        session.close()
