"""Turn the stderr of a program that runs a command elsewhere into a reason to act on."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from oncall.fleet.outcome import HostError, Kind

_MOST_LINE = 200


class TransientError(HostError):
    """A failure that a retry may avoid, such as a server too busy to greet."""


@dataclass(frozen=True)
class ErrorPattern:
    """A phrase of a program's stderr, and the advice: `{line}` is its line, `{host}` the host."""

    kind: Kind
    pattern: re.Pattern[str]
    advice: str = "{line}"
    transient: bool = False


def pattern(
    kind: Kind, words: str, advice: str = "{line}", *, transient: bool = False
) -> ErrorPattern:
    """The pattern of a regular expression that ignores case."""
    return ErrorPattern(kind, re.compile(words, re.IGNORECASE), advice, transient)


def first_match(patterns: Sequence[ErrorPattern], host: str, said: str) -> HostError | None:
    """The reason by the first pattern that matches; None if none does."""
    for one in patterns:
        if match := one.pattern.search(said):
            message = one.advice.format(host=host, line=_line_at(said, match.start()))
            return (TransientError if one.transient else HostError)(one.kind, message)
    return None


def last_line(said: str) -> str:
    """The last line that is not empty, shortened and without control characters."""
    lines = [line for line in plain(said).splitlines() if line.strip()]
    return lines[-1].strip()[:_MOST_LINE] if lines else ""


def plain(text: str) -> str:
    """Untrusted text in which every control character except line feeds is a space."""
    return "".join(c if c.isprintable() or c == "\n" else " " for c in text)


def _line_at(said: str, position: int) -> str:
    start = said.rfind("\n", 0, position) + 1
    return plain(said[start:].partition("\n")[0]).strip()[:_MOST_LINE]
