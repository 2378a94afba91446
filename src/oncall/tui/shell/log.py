"""The log's lines."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from oncall.core.diagnosis import Severity
from oncall.core.printable import clean_lines

MOST = 500  # lines kept


@dataclass(frozen=True)
class LogLine:
    """Something that happened; `clock` is the console's, UTC."""

    clock: str
    text: str
    severity: Severity = "info"


def lines_of(clock: str, text: str, severity: Severity = "info") -> list[LogLine]:
    """A message, one line of it a line."""
    return [LogLine(clock, line, severity) for line in clean_lines(text) or [""]]


def matching(lines: Iterable[LogLine], filter_text: str) -> list[LogLine]:
    """Those that hold the text, whatever its case."""
    wanted = filter_text.casefold()
    return [line for line in lines if wanted in line.text.casefold()]
