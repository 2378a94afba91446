"""Lines in no known form that a logger calls fatal, or an error that something waited in vain; and
the last words of a runtime. A report quotes them where nothing else says what failed."""

from __future__ import annotations

import re
from collections.abc import Sequence

from oncall.importers.logs.line import Found, Line, Recogniser, event

_FATAL = {"F", "C"}  # first letters of levels: fatal, critical
_ERRORS = {"E", *_FATAL}  # and error
# Of Rust, Go, C++ and the C library, as the process ends.
_LAST_WORDS = (
    *("panicked at", "panic: ", "terminate called", "core dumped", "stack smashing detected"),
    *("free(): ", "malloc(): ", "Assertion `", "Check failed: ", "atal error: "),
)
_IN_VAIN = re.compile(r"\b[Tt]im(?:ed[ -]?out|e-?out)\b|\bmay be stuck\b|\bhung\b|[Dd]eadlock")


def read(line: Line) -> Sequence[Found]:
    """The line, if a logger calls it an error, or a runtime ends its process."""
    if line.level in _ERRORS and _IN_VAIN.search(line.text):
        return [event("reported", "timeout", text=line.text)]
    if line.level in _FATAL or any(words in line.text for words in _LAST_WORDS):
        return [event("reported", "fatal", text=line.text)]
    return []


_WORDS = ("imeout", "imed out", "imed-out", "may be stuck", " hung", "eadlock", "FATAL", "CRITICAL")
REPORTED = Recogniser("reported", (*_WORDS, *_LAST_WORDS), read)
