"""What composition works with: statements with their places, and cases of one cause each."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import inf

from oncall.core.diagnosis import Effect, Finding
from oncall.core.places import NOWHERE, Cells, Places, contain


@dataclass(frozen=True)
class Job:
    """The job that findings are about. `shows`: something is recorded that can show whether it
    loses time; where nothing is, symptoms are the answer."""

    places: Places = field(default_factory=Places)
    shows: bool = True


@dataclass(frozen=True, eq=False)
class Statement:
    """A finding with its place: the `cells` of what is to blame, its `reach` (where it is felt:
    nowhere in particular is everywhere), the hosts that it names, and whether that is the job's."""

    finding: Finding
    cells: Cells
    reach: Cells
    nodes: frozenset[str]
    of_job: bool

    @property
    def effects(self) -> frozenset[Effect]:
        return self.finding.claim.effects

    @property
    def size(self) -> float:
        return len(self.cells) or inf

    def meets(self, other: Statement) -> bool:
        """Whether one is felt where the other is."""
        return contain(self.reach, other.cells) or contain(self.cells, other.reach)

    @property
    def measured(self) -> bool:
        """Whether what it costs lies above the noise."""
        lost = self.finding.lost
        return lost is not None and lost.low is not None and lost.low > 0


@dataclass(frozen=True, eq=False)
class Case:
    """One cause: the effects that are one, the best witness first, and what explains them."""

    effects: tuple[Statement, ...] = ()
    causes: tuple[Statement, ...] = ()

    @property
    def head(self) -> Statement:
        """Whom the finding names."""
        return (self.causes or self.effects)[0]

    @property
    def stops(self) -> bool:
        return "stop" in self.lost

    @cached_property
    def lost(self) -> frozenset[Effect]:
        return frozenset[Effect]().union(*(one.effects for one in self.effects))

    @cached_property
    def placed(self) -> list[Cells]:
        return [one.cells for one in self.effects if one.cells] or [NOWHERE]

    @property
    def share(self) -> float:
        """Of the time, what the job loses by it."""
        return max((one.finding.lost.share for one in self.effects if one.finding.lost), default=0)

    @property
    def proven(self) -> bool:
        """Whether the job does lose something: measured, or shown by two that do not know of one
        another. A stop is one; and a rulebook that declares no kinds accuses as it says."""
        witnesses = {one.finding.shown_by for one in self.effects if one.cells}
        return self.stops or len(witnesses) > 1 or any(map(_counts_alone, self.effects))


def _counts_alone(one: Statement) -> bool:
    return one.measured or not one.finding.claim.declared


def placed(finding: Finding, places: Places) -> Statement:
    on = finding.claim.on
    reach = places.cells(finding, on)
    cells = places.cells(finding, None) if on in ("job", "group") else reach
    of_job = not places.ranks or any(isinstance(cell, int) for cell in cells)
    return Statement(finding, cells, reach, places.nodes(finding), of_job)


def over_before(one: Finding, other: Finding, by_ns: int = 0) -> bool:
    until_ns, at_ns = one.until_ns, other.at_ns
    return until_ns is not None and at_ns is not None and until_ns + by_ns < at_ns


def apart_ns(one: Finding, other: Finding) -> int:
    """How far apart two findings began; 0 where that is not known."""
    known = one.at_ns is not None and other.at_ns is not None
    return abs((one.at_ns or 0) - (other.at_ns or 0)) if known else 0
