"""Sessions of pytest: what is printed in one that passes, the tests provoked."""

from __future__ import annotations

import re
from collections.abc import Sequence

from oncall.importers.logs.line import Found, Line, Recogniser, event

_BEGINS = re.compile(r"^=+ test session starts =+$")
_PASSES = re.compile(r"^=+ (?!.*\b(?:failed|errors?)\b)(?=.*\bpassed\b)(?=.* in [\d.]+s\b).*=$")


def read(line: Line) -> Sequence[Found]:
    """Where a session begins, and where one ends in which no test failed."""
    text = line.text.strip()
    if _BEGINS.match(text):
        return [event("test_session", "begins")]
    return [event("test_session", "passed")] if _PASSES.match(text) else []


TEST_SESSIONS = Recogniser("test sessions", ("test session starts", " passed"), read)
