"""Lines in no known form that a logger calls fatal, or an error that something waited in vain: a
report quotes them where nothing else says what failed."""

from __future__ import annotations

import re
from collections.abc import Sequence

from oncall.importers.logs.line import Found, Line, Recogniser, event

_FATAL = {"F", "C"}  # first letters of levels: fatal, critical
_ERRORS = {"E", *_FATAL}  # and error
_IN_VAIN = re.compile(r"\b[Tt]im(?:ed[ -]?out|e-?out)\b|\bmay be stuck\b|\bhung\b|[Dd]eadlock")


def read(line: Line) -> Sequence[Found]:
    """The line, if a logger calls it an error, or a program written in Rust gives up."""
    if line.level in _ERRORS and _IN_VAIN.search(line.text):
        return [event("reported", "timeout", text=line.text)]
    if line.level in _FATAL or "panicked at" in line.text:
        return [event("reported", "fatal", text=line.text)]
    return []


REPORTED = Recogniser(
    "reported",
    (
        "imeout",
        "imed out",
        "imed-out",
        "may be stuck",
        " hung",
        "eadlock",
        "FATAL",
        "CRITICAL",
        "panicked at",
    ),
    read,
)
