"""Lines in no known form that report a failure: by their level, or as a tool or the C library
words it, or as an exit status. A report quotes them where nothing else says what failed."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Sequence

from oncall.importers.logs.line import Found, Line, event

_ERRORS = {"E", "F", "C"}  # first letters of levels: error, fatal, critical
_IN_VAIN = re.compile(r"\b[Tt]im(?:ed[ -]?out|e-?out)\b|\bmay be stuck\b|\bhung\b|[Dd]eadlock")
_OF_SYSTEM = "|".join(re.escape(os.strerror(number)) for number in errno.errorcode)
# Python's and tools' warnings, and what a tracker of metrics says of itself, end no job.
_HARMLESS = re.compile(r"wandb: |.*?[Ww]arning: ")
# Without a level: the word stands first in the line or behind a colon, or ends it as the system's
# reason; counts of none are no failure.
_FAILS = re.compile(
    r"(?:^|[:\]*] |\()(?i:(?:[a-z/]+ )?(?:error|fatal|failed|failure|abort(?:ed|ing)|panic|killed|"
    r"terminated?|core dumped|invalid|not found|cannot|could not|unable to))\b(?![\w ]*[:=] *0\b)|"
    rf"(?i:panicked at|check failed| failed[.!]?$|fatal error)|: (?:{_OF_SYSTEM})\b"
)
_STATUS = re.compile(
    r"(?:^|\s)(?i:(?:exit|return)(?:ed|ing|s)?(?: with)?[ _-]?(?:code|status)?|rc|(?<=\] )error)"
    r"[ :=]{1,3}(?P<code>-?[1-9]\d{0,2})(?:\W*$|, )"
)


def read_at_end(line: Line) -> Sequence[Found]:
    """What a line behind all progress says of a failure."""
    if line.nccl or line.level not in (None, *_ERRORS) or _HARMLESS.match(line.text):
        return []
    if found := _STATUS.search(line.text):
        return [event("exit", found["code"], number=0, text=line.text)]
    if line.level and _IN_VAIN.search(line.text):
        return [event("reported", "timeout", text=line.text)]
    if line.level or _FAILS.search(line.text):
        return [event("reported", "failure", text=line.text)]
    return []
