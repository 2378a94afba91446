"""One log, and the rows that its lines become."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

STEP_TABLE = "logged_steps"
_MAY_BE_STUCK = ("stuck", "clique")
_GOES_ON = 3  # answers after an error: the server outlived it


@dataclass
class LogFile:
    """One log, and what was found in it."""

    path: Path
    attempt: int
    rank: int | None
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    count: Counter[tuple[Any, ...]] = field(default_factory=Counter)
    kept: int = 0
    dated: int = 0  # events that were dated by the lines around them
    problem: str | None = None
    written_ns: int | None = None
    note: str | None = None
    numbered: bool = False  # its name says which attempt it is of
    world: int = 0
    local_ranks: set[int] = field(default_factory=set)  # that its lines are of, as torchrun says
    before_tests: dict[str, int] | None = None  # rows of each table when a test session began

    @property
    def begins(self) -> bool:
        """Whether the last that was kept is that a start begins: its agent says so twice."""
        events = self.rows["log_events"]
        return bool(events) and events[-1]["kind"] == "attempt"

    def test_session(self, code: str) -> None:
        """What tests print that all pass, they provoked: it says nothing of a fault."""
        if code == "begins":
            self.before_tests = {table: len(rows) for table, rows in self.rows.items()}
        elif self.before_tests is not None:
            for table, rows in self.rows.items():
                del rows[self.before_tests.get(table, 0) :]
            self.before_tests = None

    def went_on(self) -> None:
        """A thread that was said to be stuck is not: the warning is taken back."""
        events = self.rows["log_events"]
        warned = (n for n in range(len(events) - 1, -1, -1) if events[n]["code"] in _MAY_BE_STUCK)
        if (last := next(warned, None)) is not None:
            del events[last]

    def forget_one_of_many(self, kind: str) -> None:
        """Of events in a row that say that a server answers, as many as show that it goes on."""
        events = self.rows["log_events"]
        if all(row["kind"] == kind for row in events[-_GOES_ON:]) and len(events) >= _GOES_ON:
            self.count["log_events", kind, None, None, events.pop()["node"]] -= 1
            self.kept -= 1
