"""A span of time in equal buckets, in which of them each node recorded, and by which numbers rates
in them are compared.

A bucket in which nothing completed is a zero where the rank's node recorded, and a gap (NaN)
where it was not while others were: a rank that hung and one without data must not look alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import numpy.typing as npt

from oncall.core.units import NS_PER_S
from oncall.rules.language.rulebook import Rulebook
from oncall.views.snapshot import Ranks

if TYPE_CHECKING:
    from oncall.views.snapshot import Ints

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

MOST_BUCKETS = 240  # wider than most screens
FINE_BUCKETS = 960
_LEAST_BUCKET_NS = NS_PER_S // 10
_FEWEST_BUCKETS = 24  # a dump of a fraction of a second still shows when it stopped
# A step may be longer than a bucket: silence shorter than this is no gap.
_SHORTEST_GAP_NS = 10 * NS_PER_S
SHORTEST_GAP_BUCKETS = 3
# The baseline is of the first part, as round_baselines has it: baseline_part, baseline_for.
BASELINE_PART = 4
BASELINE_NS = 120 * NS_PER_S
NEARLY_NOTHING = 0.05  # of the mean of a baseline
_STOPPED = 2  # times as long as any pause before
_BASELINE_LEAST = 5  # buckets
# What a pause or a burst in it reached is no baseline; and nobody gets up for a tenth, which a busy
# host or a checkpoint takes.
_BAND = (0.05, 0.95)  # quantiles
_LEAST_BAND = 0.1  # of the median, beyond them
_BEFORE = 0.75  # of the time before a fault began, as what slows a job shows a while later


@dataclass(frozen=True)
class Buckets:
    """`count` equal spans of `length_ns` from `first_ns` on, Unix ns."""

    first_ns: int
    length_ns: float
    count: int

    @classmethod
    def over(cls, first_ns: int, last_ns: int, most: int = MOST_BUCKETS) -> Buckets:
        """As many as fit on a screen, and few shorter than a tenth of a second."""
        span_ns = max(1, last_ns - first_ns)
        count = min(most, max(_FEWEST_BUCKETS, span_ns // _LEAST_BUCKET_NS))
        return cls(first_ns, span_ns / count, count)

    @property
    def at_ns(self) -> Ints:
        """The middle of each, (count,)."""
        middles = self.first_ns + (np.arange(self.count) + 0.5) * self.length_ns
        return middles.astype(np.int64)

    def sql(self, instant: str) -> str:
        """The number of the bucket that an instant falls in, as SQL; NULL outside."""
        place = f"(({instant}) - {self.first_ns}) / {self.length_ns!r}"
        inside = f"({instant}) BETWEEN {self.first_ns} AND {self.last_ns}"
        return f"CASE WHEN {inside} THEN least({self.count - 1}, floor({place}))::INTEGER END"

    @property
    def last_ns(self) -> int:
        return self.first_ns + round(self.count * self.length_ns)  # a sum of floats loses 256 ns


@dataclass(frozen=True)
class Series:
    """A rate over time: `at_ns` and `value` (k,), NaN where nothing was recorded."""

    name: str  # rank 5 sends, gpu017 mlx5_0 tx
    unit: str  # ops/s, B/s, ...
    at_ns: Ints
    value: npt.NDArray[np.float64]
    baseline: tuple[float, float] | None = None  # band: low, high
    suspect: bool = False
    group: str = ""  # series of one group share a scale
    threshold: float | None = None  # below or above which a rulebook speaks
    subject: str = ""  # what `Session.rates` takes for a finer grain: rank 5, nic gpu017 mlx5_0


class RecordedBuckets:
    """In which buckets each node recorded anything, and `anybody`; a node not known is its rank."""

    def __init__(self, con: duckdb.DuckDBPyConnection, ranks: Ranks, buckets: Buckets) -> None:
        self.buckets = buckets
        self._home = {
            int(rank): node or f"rank {rank}"
            for rank, node in zip(ranks.rank, ranks.node, strict=True)
        }
        self._recorded = self._marks(con)
        everybody = np.zeros(buckets.count, dtype=bool)
        for marks in self._recorded.values():
            everybody |= marks
        self._nobody = ~everybody
        self.anybody = _closed(everybody, self._shortest())

    def of(self, rank: int) -> Bools:
        """Where a zero of the rank is a zero, (buckets,)."""
        marks = self._recorded.get(self._home.get(rank, f"rank {rank}"))
        if marks is None:
            return np.zeros(self.buckets.count, dtype=bool)
        return _closed(marks | self._nobody, self._shortest())

    def whole_until(self) -> int:
        """The last bucket that is known of all nodes reporting lately: each is asked at a moment of
        its own, and what the first has yet to report is no zero."""
        lasts = [int(np.flatnonzero(marks)[-1]) for marks in self._recorded.values() if marks.any()]
        end = self.buckets.count - 1
        return min((last for last in lasts if last >= end - self._shortest()), default=end)

    def _shortest(self) -> int:
        return max(SHORTEST_GAP_BUCKETS, round(_SHORTEST_GAP_NS / self.buckets.length_ns))

    def _marks(self, con: duckdb.DuckDBPyConnection) -> dict[str, Bools]:
        """Node -> the buckets in which something of it began, ended, or was in flight."""
        began, ended = (
            self.buckets.sql("entered_ns"),
            self.buckets.sql("coalesce(ended_ns, observed_ns)"),
        )
        rows = con.execute(
            f"""
            WITH placed AS (SELECT DISTINCT ON (rank) rank, node FROM ranks),
            spans AS (
                SELECT rank, {began} AS low, {ended} AS high FROM operations),
            seen AS (
                SELECT coalesce(node, 'rank ' || rank) AS home, coalesce(low, high) AS low,
                    coalesce(high, low) AS high
                FROM (SELECT DISTINCT rank, low, high FROM spans) LEFT JOIN placed USING (rank)
                UNION ALL
                SELECT coalesce(node, 'rank ' || rank), b, b FROM (
                    SELECT rank, {self.buckets.sql("at_ns")} AS b FROM launches)
                LEFT JOIN placed USING (rank)
                UNION ALL
                SELECT node, b, b FROM (
                    SELECT node, {self.buckets.sql("at_ns")} AS b FROM collectors
                    WHERE error IS NULL))
            SELECT DISTINCT home, low, greatest(low, high) FROM seen WHERE low IS NOT NULL
            """
        ).fetchall()
        marks: dict[str, Bools] = {}
        for home, low, high in rows:
            if home not in marks:
                marks[home] = np.zeros(self.buckets.count, dtype=bool)
            marks[home][low : high + 1] = True
        return marks


def _closed(marks: Bools, shortest: int) -> Bools:
    """The marks, with runs between them filled that are shorter than `shortest`."""
    closed = marks.copy()
    places = np.flatnonzero(marks)
    for low, high in pairwise(places):
        if high - low <= shortest:
            closed[low:high] = True
    if len(places) and len(marks) - 1 - places[-1] < shortest:
        closed[places[-1] :] = True
    if len(places) and places[0] < shortest:
        closed[: places[0]] = True
    return closed


def has_stopped(value: Floats) -> bool:
    """Whether it ends with zeros for longer than ever before. A rank that pauses between bursts has
    not stopped; spans without data count as neither."""
    zero = value[~np.isnan(value)] == 0
    if not len(zero) or not zero[-1] or zero.all():
        return False
    runs = np.diff(np.flatnonzero(np.concatenate(([True], ~zero, [True])))) - 1
    return bool(runs[-1] > _STOPPED * max(runs[:-1].max(initial=0), 1))


def baseline_of(
    value: Floats,
    buckets: Buckets,
    part: float = BASELINE_PART,
    most_ns: float = BASELINE_NS,
    began_ns: int | None = None,
) -> tuple[float, float] | None:
    """The band (low, high) that the first `part`-th kept to, `most_ns` of it at most, and nothing
    after a fault began; None where that is too short or unseen."""
    until_ns = min(buckets.count * buckets.length_ns / part, most_ns)
    if began_ns is not None:
        until_ns = min(until_ns, _BEFORE * (began_ns - buckets.first_ns))
    first = max(0, int(until_ns / buckets.length_ns))
    known = value[:first][~np.isnan(value[:first])]
    if len(known) < _BASELINE_LEAST:
        return None
    low, middle, high = np.quantile(known, [_BAND[0], 0.5, _BAND[1]]).tolist()
    margin = _LEAST_BAND * middle
    return max(0.0, low - margin), high + margin


@dataclass(frozen=True)
class RateThresholds:
    """The baseline is of the first `baseline_part`-th of the time, `baseline_ns` at most; who is
    below `rate_below` of its peers' mean rate is singled out (None: nobody is)."""

    baseline_part: float = BASELINE_PART
    baseline_ns: float = BASELINE_NS
    rate_below: float | None = None

    @classmethod
    def of(cls, rulebooks: Sequence[Rulebook]) -> RateThresholds:
        """As the rulebook that declares `draw: rates` has it, a site's own values included."""
        drawn = (one for one in rulebooks if one.book.draw == "rates" and one.enabled)
        book = next(drawn, None)
        if book is None:
            return cls()
        values = {
            name: quantity.value
            for name, quantity in book.params.items()
            if isinstance(quantity.value, int | float)
        }
        below = values.get("rate_below")
        return cls(
            # A site may write 0, which is no part.
            baseline_part=max(1.0, float(values.get("baseline_part", BASELINE_PART))),
            baseline_ns=float(values.get("baseline_for", BASELINE_NS)),
            rate_below=None if below is None else float(below),
        )

    def baseline(self, value: Floats, buckets: Buckets) -> tuple[float, float] | None:
        """The band that the first part kept to, if it is known."""
        return baseline_of(value, buckets, self.baseline_part, self.baseline_ns)

    def threshold(self, rank: int, measured: Mapping[int, Floats]) -> float | None:
        """Below which rate the rank is singled out among others, by rank; None without others."""
        others = [value[~np.isnan(value)] for other, value in measured.items() if other != rank]
        known = np.concatenate([np.empty(0), *others])
        if self.rate_below is None or not len(known):
            return None
        return self.rate_below * float(known.mean())
