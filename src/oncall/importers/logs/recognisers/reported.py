"""Lines of the level of an error that say that something waited in vain, in no known form: a report
quotes them where nothing else says what failed."""

from __future__ import annotations

import re
from collections.abc import Sequence

from oncall.importers.logs.line import Found, Line, Recogniser, event

_ERRORS = {"E", "F", "C"}  # first letters of levels: error, fatal, critical
_IN_VAIN = re.compile(r"\b[Tt]im(?:ed[ -]?out|e-?out)\b|\bmay be stuck\b|\bhung\b|[Dd]eadlock")


def read(line: Line) -> Sequence[Found]:
    """The line, if a logger calls it an error."""
    if line.level in _ERRORS and _IN_VAIN.search(line.text):
        return [event("reported", "timeout", text=line.text)]
    return []


REPORTED = Recogniser(
    "reported", ("imeout", "imed out", "imed-out", "may be stuck", " hung", "eadlock"), read
)
