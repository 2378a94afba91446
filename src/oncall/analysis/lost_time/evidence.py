"""What ways of finding lost time look at: of one job, worked out once and only when asked for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import duckdb
import numpy as np

from oncall.analysis.lost_time.books import Books, books_of
from oncall.analysis.lost_time.exposure import exposure_of
from oncall.analysis.lost_time.iterations import Iterations, iterations_of
from oncall.analysis.lost_time.lateness import Lateness, lateness_of
from oncall.analysis.lost_time.limits import Limits
from oncall.analysis.lost_time.moments import Arrivals, arrivals_of
from oncall.analysis.lost_time.peers import with_peers
from oncall.analysis.lost_time.programs import NONE, Programs
from oncall.analysis.lost_time.slowdowns import Slowdown, slowdowns_in, slowdowns_of


@dataclass(frozen=True)
class Evidence:
    """The evidence of a job: `programs` are what its ranks called."""

    con: duckdb.DuckDBPyConnection
    job: str
    programs: Programs
    limits: Limits

    @cached_property
    def books(self) -> Books | None:
        """The accounts of its like iterations; None if they are not most of the time."""
        books = books_of(self.programs, self.limits)
        return books if books is not None and books.covered >= self.limits.mostly else None

    @property
    def replay(self) -> Books | None:
        """The same if replays last as long as was measured, of enough iterations to accuse by."""
        books = self.books
        enough = books is not None and len(books.length_ns) >= self.limits.fewest
        return books if books is not None and enough and books.hold(self.limits) else None

    @property
    def few(self) -> Books | None:
        """The same of too few iterations to accuse anyone by: they show what lateness costs."""
        books = self.books
        few = books is not None and len(books.length_ns) < self.limits.fewest
        return books if books is not None and few and books.hold(self.limits) else None

    @property
    def inexact(self) -> Books | None:
        """The same if replays do not last as long as was measured: they show what changed."""
        books = self.books
        return books if books is not None and not books.hold(self.limits) else None

    @property
    def replayed(self) -> bool:
        """Whether replays have all that happened: what they do not name costs nothing."""
        replay = self.replay
        return replay is not None and replay.missed < self.limits.least_gain

    @cached_property
    def arrivals(self) -> Arrivals:
        return arrivals_of(self.programs, self.limits)

    @cached_property
    def iterations(self) -> Iterations | None:
        """The iterations that hosts show."""
        return iterations_of(self.programs, self.arrivals.moments(), self.limits)

    @cached_property
    def lateness(self) -> Lateness | None:
        """Who came late in them."""
        found = self.iterations
        if found is None:
            return None
        moments = self.arrivals.moments(found.nth)
        return lateness_of(with_peers(self.programs, found.cut), found, moments, self.limits)

    @cached_property
    def exposed(self) -> Lateness | None:
        """How much less each rank waited than the others, as profiles show it."""
        return self.exposure(but=0)

    def exposure(self, but: int) -> Lateness | None:
        """The same without the longest waits, `but` so many."""
        return exposure_of(self.con, self.job, self.programs.ranks, self.limits, but=but)

    @cached_property
    def slowdowns(self) -> list[Slowdown]:
        """The iterations that are longer than the others."""
        if self.replay is not None:
            return slowdowns_of(self.replay, self.limits)
        found = self.iterations
        return [] if found is None or found.stretches else slowdowns_in(found, self.limits)

    @property
    def timed(self) -> bool:
        return self.arrivals.timed

    @property
    def stages(self) -> bool:
        """Whether ranks send to one another, as stages of a pipeline do."""
        return bool(self.programs.batch.any())

    @property
    def in_larger(self) -> bool:
        """Whether ranks call in groups larger than those that iterations are of."""
        found = self.iterations
        size = np.array([len(line) for line in self.programs.members])[self.programs.comm]
        return found is not None and bool(size[found.number != NONE].max() > size[found.cut].max())
