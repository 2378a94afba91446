"""Every error a person can act on, and every exit code, in one place.

    OncallError                 something the engineer can act on; never shown as a traceback
    ├── UsageError              invalid command line                                exit 2
    ├── BadInput                a recording or incident file cannot be read         exit 2
    │   └── SeveralJobs         one of several jobs must be chosen                  exit 2
    ├── Unreadable              a part of a recording cannot be read; becomes its problem
    ├── RulebookError           a rulebook has errors; carries all of them          exit 2
    ├── Interrupted             the user stopped it                                 exit 130
    ├── MissingEvidence         a relation needs tables that are empty              (SKIPPED)
    └── RelationFailed          a relation cannot be computed from its evidence     (SKIPPED)

Any other exception is a bug in oncall: one line on stderr, exit 70, and a traceback only with
ONCALL_DEBUG=1. `oncall --help` documents the exit codes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

_MOST_SHOWN = 160  # characters of a source line or a reason
_MOST_PROBLEM = 2000  # characters of a problem, which may quote a file


class ExitCode(IntEnum):
    """Exit codes of the process, as documented in `oncall --help`."""

    HEALTHY = 0
    FINDING = 1
    BAD_INPUT = 2
    TOO_LITTLE_COVERAGE = 3
    BUG = 70
    INTERRUPTED = 130
    BROKEN_PIPE = 141


class OncallError(Exception):
    """Something the engineer can act on: the message says what, where, and what to do."""

    exit_code = ExitCode.BAD_INPUT


class UsageError(OncallError):
    """The command line asks for something that cannot be done."""


class BadInput(OncallError):
    """A file cannot be read as evidence. `place` is a path, with a position if known."""

    def __init__(self, place: str, problem: str) -> None:
        self.place = place
        self.problem = _plain(problem)
        super().__init__(f"{_plain(place)}: {self.problem}")


class SeveralJobs(BadInput):
    """Recordings of several `jobs`, of which one must be chosen."""

    def __init__(self, place: str, problem: str, jobs: Sequence[str]) -> None:
        self.jobs = tuple(map(_plain, jobs))
        super().__init__(place, problem)


class Unreadable(OncallError):
    """One part of a recording cannot be read, or only partly. The message says why, without the
    path, and becomes the problem of its recording."""

    def __init__(self, problem: str) -> None:
        super().__init__(_plain(problem))


def _plain(text: str) -> str:
    """Untrusted text, shortened and without control characters."""
    shown = text if len(text) <= _MOST_PROBLEM else text[: _MOST_PROBLEM - 1] + "…"
    return "".join(c if c.isprintable() else "�" for c in shown)


class NotRecorded(UsageError):
    """The evidence has nothing of what was asked for: no failure, and the message says who records
    it."""


class Interrupted(OncallError):
    """The user stopped a computation or a gather."""

    exit_code = ExitCode.INTERRUPTED

    def __init__(self) -> None:
        super().__init__("stopped")


class MissingEvidence(OncallError):
    """A relation needs tables that are empty in this incident."""

    def __init__(self, relation: str, missing: Sequence[str]) -> None:
        self.relation = relation
        self.missing = tuple(missing)
        super().__init__(f"{relation} needs missing evidence: {', '.join(missing)}")


class RelationFailed(OncallError):
    """A relation cannot be computed although its evidence is present. `relation` is the one that
    failed, even if one that reads it was requested; `details` is the traceback."""

    def __init__(self, relation: str, reason: str, details: str = "") -> None:
        self.relation = relation
        self.reason = reason
        self.details = details
        super().__init__(f"could not be computed: {relation} ({reason})")


def of_system(error: OSError) -> UsageError:
    """What the system refused (a full disk, a name too long, no permission), in its words."""
    place = f"{error.filename!s}: " if error.filename else ""
    return UsageError(f"{place}{error.strerror or error}")


def short_reason(error: BaseException, without: str = "") -> str:
    """The error in one line: DuckDB's message, or the type of error and its message; `without`
    what the reader knows anyway."""
    said = next(iter(str(error).replace(without, "").strip().splitlines()), "")
    if "duckdb" not in type(error).__module__ and not isinstance(error, OncallError):
        said = f"{type(error).__name__}: {said}" if said else type(error).__name__
    return said if len(said) <= _MOST_SHOWN else f"{said[:_MOST_SHOWN]}…"


@dataclass(frozen=True)
class Problem:
    """One error in a rulebook, with its position (1-based line and column)."""

    path: str
    line: int
    column: int
    message: str
    source_line: str = ""
    length: int = 1

    def __str__(self) -> str:
        head = f"{self.path}:{self.line}:{self.column}: error: {self.message}"
        if not self.source_line:
            return head
        line, at = _around(self.source_line, self.column - 1)
        # A tab stays a tab, or the caret would point elsewhere.
        before = line[:at].ljust(at)
        caret = "".join(c if c == "\t" else " " for c in before)
        caret += "^" * max(1, min(self.length, len(line) - at))
        return f"{head}\n    {line}\n    {caret}"


def _around(line: str, at: int) -> tuple[str, int]:
    """The part of a long line around position `at`, and where in it that is."""
    start = max(0, at - _MOST_SHOWN // 2) if len(line) > _MOST_SHOWN else 0
    part = line[start : start + _MOST_SHOWN]
    left = "…" if start else ""
    right = "…" if start + len(part) < len(line) else ""
    return left + part + right, at - start + len(left)


class RulebookError(OncallError):
    """One or more rulebooks are wrong; every problem found is listed."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in problems))
