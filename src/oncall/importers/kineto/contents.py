"""What one trace gives."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from oncall.importers.flight_recorder.groups import Group
from oncall.importers.kineto.columns import Columns, columns_of
from oncall.importers.kineto.tasks import NamedTasks
from oncall.importers.kineto.trace import Owner


@dataclass(frozen=True)
class Reading:
    """One trace: whose, from when to when, its groups by name, its operations and tasks.

    `counted`: its collectives carry no numbers of their own. `problem` says what was not read,
    `notes` what was inferred. `span_ns` is None where there is nothing in it.
    """

    path: Path
    owner: Owner
    span_ns: tuple[int, int] | None
    groups: dict[str, Group]
    sizes: dict[Group, int]
    counted: bool
    operations: Columns
    named: NamedTasks
    problem: str | None
    notes: tuple[str, ...]

    @property
    def rows(self) -> int:
        return len(self.operations) + len(self.named.tasks)

    def without_rows(self, problem: str) -> Reading:
        """The same file, left out."""
        return replace(
            self,
            operations=columns_of([]),
            named=NamedTasks([]),
            problem=problem,
            notes=(),
        )
