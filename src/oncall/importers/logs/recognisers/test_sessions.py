"""Tests that pass as a whole: sessions of pytest, in which what is printed was provoked; of
nccl-tests; and jobs that Slurm lists as completed."""

from __future__ import annotations

import re
from collections.abc import Sequence

from oncall.importers.logs.line import Found, Line, Recogniser, event

_BEGINS = re.compile(r"^=+ test session starts =+$")
_PASSES = re.compile(
    r"^=+ (?!.*\b(?:failed|errors?)\b)(?=.*\bpassed\b)(?=.* in [\d.]+s\b).*=$|"
    r"^# Out of bounds values : 0 OK|^State: COMPLETED \(exit code 0\)|.*\bCOMPLETED +0:0\b"
)


def read(line: Line) -> Sequence[Found]:
    """Where a session begins, and what says that all passed."""
    text = line.text.strip()
    if _BEGINS.match(text):
        return [event("test_session", "begins")]
    return [event("phase", "passed", text=text)] if _PASSES.match(text) else []


TEST_SESSIONS = Recogniser(
    "test sessions",
    ("test session starts", " passed", "Out of bounds values", "COMPLETED "),
    read,
)
