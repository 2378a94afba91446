"""Rates over time: of ranks on the communicators that matter, of their transfers, and of NICs.

SQL counts into a few hundred equal buckets; rows of evidence never leave it one by one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import duckdb
import numpy as np

from oncall.core.errors import UsageError
from oncall.core.printable import clean
from oncall.core.units import NS_PER_S
from oncall.evidence.incident import Incident
from oncall.rules.language.rulebook import Rulebook
from oncall.views.ranks.ranks import blamed_ranks, finding_operation
from oncall.views.rates.buckets import (
    FINE_BUCKETS,
    MOST_BUCKETS,
    NEARLY_NOTHING,
    SHORTEST_GAP_BUCKETS,
    Buckets,
    Floats,
    RateThresholds,
    RecordedBuckets,
    Series,
    has_stopped,
)
from oncall.views.rates.job import job_series
from oncall.views.snapshot import Snapshot
from oncall.views.words import blaming

KINDS = ("suspects", "job", "ranks", "nics")
MOST_SERIES = 32
_RANKS = re.compile(r":? [\d,…-]+$")  # at the end of a communicator's label
_MOST_MEMBERS = 8  # of one communicator

# What is counted; of a digest, a kept round stands for several.
_OPERATIONS = "sum(coalesce(stands_for, 1))"
_BYTES = "coalesce(sum(bytes * coalesce(stands_for, 1)), 0)"


def series_of(
    incident: Incident, snapshot: Snapshot, kind: str, rulebooks: Sequence[Rulebook] = ()
) -> tuple[Series, ...]:
    """The rates of one of KINDS, suspects first, or of one thing on a finer grain; none where
    the evidence has no times.

    suspects: completed operations a second, and send and receive rates where they are recorded,
    of the members of communicators that findings speak of. ranks: bytes a second of each rank,
    all communicators. job: how fast the whole job goes. nics: bytes a second of each port.
    `rank 5`: the rank on each of its communicators. `nic gpu017 mlx5_0`: its ports. Baselines
    and thresholds are those of `rulebooks`. Raises UsageError for another kind.
    """
    what, *name = kind.split()
    one = (what, len(name)) in (("rank", 1), ("nic", 2))
    if kind not in KINDS and not one:
        raise UsageError(f"unknown kind of rate `{kind}`; choose one of {', '.join(KINDS)}")
    first_ns, at_ns = snapshot.moment.first_ns, snapshot.moment.at_ns
    if first_ns is None or at_ns is None or at_ns <= first_ns:
        return ()
    buckets = Buckets.over(first_ns, at_ns, FINE_BUCKETS if one else MOST_BUCKETS)
    if what == "job":
        began = (one.at_ns for one in snapshot.diagnosis.faults)
        began_ns = min((at_ns for at_ns in began if at_ns is not None), default=None)
        return job_series(incident, snapshot.ranks, buckets, began_ns)
    incident.provide(("operations", "members"))
    thresholds = RateThresholds.of(rulebooks)
    rates = _Rates(incident.con, snapshot, buckets, thresholds)
    match what:
        case "nics":
            found = nic_series(incident.con, buckets, rates.nics, None, thresholds)
        case "nic":
            found = nic_series(incident.con, buckets, rates.nics, (name[0], name[1]), thresholds)
        case "ranks":
            found = list(rates.of_ranks())
        case "rank":
            found = list(rates.of_rank(_number(name[0])))
        case _:
            found = list(rates.of_suspects())
    recorded = any(np.isfinite(one.value).any() for one in found)
    return tuple(found[:MOST_SERIES]) if recorded else ()


def recorded_of(incident: Incident, rank: int) -> tuple[str, tuple[int, ...]] | None:
    """The node that recorded a rank, and its communicators."""
    rows = incident.con.execute(
        "SELECT r.node, list(DISTINCT o.comm) FROM ranks r JOIN ops o USING (job, rank) "
        "WHERE rank = ? AND r.node IS NOT NULL AND o.comm IS NOT NULL GROUP BY r.node LIMIT 1",
        [rank],
    ).fetchall()
    return next(((node, tuple(comms)) for node, comms in rows), None)


def _number(text: str) -> int:
    if not text.isdecimal():
        raise UsageError(f"`{text}` is not a rank")
    return int(text)


class _Rates:
    """The rates of a snapshot's ranks, in buckets."""

    def __init__(
        self,
        con: duckdb.DuckDBPyConnection,
        snapshot: Snapshot,
        buckets: Buckets,
        thresholds: RateThresholds,
    ) -> None:
        ranks = snapshot.ranks
        self._con = con
        self._snapshot = snapshot
        self._buckets = buckets
        self._thresholds = thresholds
        # The name alone: which ranks are in it is no part of a legend.
        self._labels = {one.comm: _RANKS.sub("", one.label) for one in snapshot.communicators}
        self._recorded: RecordedBuckets | None = None
        causes = blaming(snapshot.diagnosis)
        self.suspects = dict.fromkeys(rank for one in causes for rank in blamed_ranks(one))
        self.nics = {
            (node, nic)
            for rank, node, nic in zip(ranks.rank.tolist(), ranks.node, ranks.nic, strict=True)
            if rank in self.suspects
        }

    def of_suspects(self) -> Iterator[Series]:
        """Operations a second by member of each communicator that matters; then transfer rates."""
        for comm in self._communicators():
            yield from self._on(comm, self._members(comm))

    def of_rank(self, rank: int) -> Iterator[Series]:
        """The same of one rank, on each of its communicators; the busiest first."""
        rows = self._con.execute(
            "SELECT comm FROM operations WHERE rank = ? AND comm IS NOT NULL "
            "GROUP BY comm ORDER BY count(*) DESC, comm",
            [rank],
        ).fetchall()
        for (comm,) in rows:
            yield from self._on(comm, [rank])

    def of_ranks(self) -> Iterator[Series]:
        """Bytes a second of each rank on all communicators; operations where sizes are unknown."""
        others = (rank for rank in self._snapshot.ranks.rank.tolist() if rank not in self.suspects)
        shown = [*self.suspects, *others][:MOST_SERIES]
        ((sized,),) = self._con.execute("SELECT count(bytes) > 0 FROM operations").fetchall()
        counted = self._counted(shown, _BYTES if sized else _OPERATIONS)
        for rank in shown:
            value = self._rate(counted, rank)
            yield self._series(rank, f"rank {rank}", "B/s" if sized else "ops/s", "ranks", value)

    def _on(self, comm: int, members: Sequence[int]) -> Iterator[Series]:
        counted = self._counted(members, _OPERATIONS, comm)
        where = self._labels.get(comm, hex(comm))
        for rank in members:
            value = self._rate(counted, rank)
            yield self._series(
                rank, f"rank {rank} completes on {where}", "ops/s", f"operations {comm}", value
            )
        for column, what in (("send_rate", "sends"), ("recv_rate", "receives")):
            measured = self._measured(comm, members, column)
            for rank in members:
                if rank in measured:
                    name, group = f"rank {rank} {what} on {where}", f"{what} {comm}"
                    limit = self._thresholds.threshold(rank, measured)
                    yield self._series(rank, name, "1/s", group, measured[rank], limit)

    # ------------------------------------------------------------------ choosing

    def _communicators(self) -> tuple[int, ...]:
        """Those that findings speak of, and those that suspects, else all, spend the most time in:
        a slow link shows where the time goes, not where the most operations are."""
        causes = blaming(self._snapshot.diagnosis)
        blamed = dict.fromkeys(one[0] for f in causes if (one := finding_operation(f)) is not None)
        rows = self._con.execute(
            "SELECT comm FROM operations WHERE comm IS NOT NULL "
            "AND (len($suspects) = 0 OR list_contains($suspects, rank)) "
            "GROUP BY comm ORDER BY sum(duration_ns) DESC NULLS LAST, count(*) DESC, comm LIMIT 2",
            {"suspects": list(self.suspects)},
        ).fetchall()
        busiest = [comm for (comm,) in rows][: 1 if blamed else 2]
        return tuple(dict.fromkeys([*blamed, *busiest]))

    def _members(self, comm: int) -> tuple[int, ...]:
        """Suspects among the members first, then others."""
        rows = self._con.execute(
            "SELECT DISTINCT rank FROM members WHERE comm = ? ORDER BY rank", [comm]
        ).fetchall()
        ranks = dict.fromkeys(rank for (rank,) in rows)
        first = [rank for rank in self.suspects if rank in ranks]
        return tuple(dict.fromkeys([*first, *ranks]))[:_MOST_MEMBERS]

    # ------------------------------------------------------------------ counting

    def _counted(
        self, ranks: Iterable[int], what: str, comm: int | None = None
    ) -> Mapping[int, Floats]:
        """Rank -> `what` of the operations that ended in each bucket; NaN where none did."""
        ended = self._buckets.sql("coalesce(ended_ns, entered_ns + duration_ns, entered_ns)")
        rows = self._con.execute(
            f"SELECT rank, {ended} AS b, {what} FROM operations "
            "WHERE list_contains($ranks, rank) AND done IS DISTINCT FROM false "
            "AND ($comm IS NULL OR comm = $comm) GROUP BY rank, b HAVING b IS NOT NULL",
            {"ranks": list(ranks), "comm": comm},
        ).fetchall()
        return self._in_buckets(rows)

    def _measured(self, comm: int, ranks: Iterable[int], column: str) -> Mapping[int, Floats]:
        """Rank -> primitives a second while operations ran; gaps between operations."""
        rows = self._con.execute(
            f"SELECT rank, {self._buckets.sql('coalesce(ended_ns, entered_ns)')} AS b, "
            f"avg({column}) FROM operations WHERE comm = ? AND list_contains(?, rank) "
            f"AND {column} IS NOT NULL GROUP BY rank, b HAVING b IS NOT NULL",
            [comm, list(ranks)],
        ).fetchall()
        return self._in_buckets(rows)

    def _in_buckets(self, rows: Iterable[tuple[int, int, float]]) -> dict[int, Floats]:
        values: dict[int, Floats] = {}
        for rank, place, value in rows:
            empty = np.full(self._buckets.count, np.nan)
            values.setdefault(rank, empty)[place] = float(value)
        return values

    def _rate(self, counted: Mapping[int, Floats], rank: int) -> Floats:
        """A second's worth: zeros where the rank's node recorded and nothing completed."""
        if self._recorded is None:
            self._recorded = RecordedBuckets(self._con, self._snapshot.ranks, self._buckets)
        empty = np.full(self._buckets.count, np.nan)
        value = counted.get(rank, empty) / (self._buckets.length_ns / NS_PER_S)
        return np.where(np.isnan(value) & self._recorded.of(rank), 0.0, value)

    def _series(
        self,
        rank: int,
        name: str,
        unit: str,
        group: str,
        value: Floats,
        threshold: float | None = None,
    ) -> Series:
        baseline = self._thresholds.baseline(value, self._buckets)
        if baseline is not None and has_stopped(value):  # nothing is no longer as before
            low, high = baseline
            baseline = max(low, (low + high) / 2 * NEARLY_NOTHING), high
        return Series(
            name=clean(name),
            unit=unit,
            at_ns=self._buckets.at_ns,
            value=value,
            baseline=baseline,
            suspect=rank in self.suspects,
            group=group,
            threshold=threshold,
            subject=f"rank {rank}",
        )


Nic = tuple[str, str]  # node and device


def nic_series(
    con: duckdb.DuckDBPyConnection,
    buckets: Buckets,
    suspects: Collection[Nic],
    only: Nic | None = None,
    thresholds: RateThresholds | None = None,
) -> list[Series]:
    """Bytes a second, those of suspects first; gaps where no counter was read in time."""
    rows = con.execute(
        f"""
        WITH steps AS (
            SELECT node, nic, port, at_ns, at_ns - lag(at_ns) OVER w AS took_ns,
                tx_bytes - lag(tx_bytes) OVER w AS tx, rx_bytes - lag(rx_bytes) OVER w AS rx
            FROM nics WHERE $node IS NULL OR (node = $node AND nic = $nic)
            WINDOW w AS (PARTITION BY node, nic, port ORDER BY at_ns)),
        timed AS (
            SELECT *, median(took_ns) OVER (PARTITION BY node, nic, port) AS median_ns FROM steps
            WHERE took_ns > 0)
        -- A counter that fell was set back; a reading long after the one before gives no rate.
        SELECT node, nic, port, {buckets.sql("at_ns")} AS b,
            sum(tx) FILTER (tx >= 0) * 1e9 / sum(took_ns) FILTER (tx >= 0),
            sum(rx) FILTER (rx >= 0) * 1e9 / sum(took_ns) FILTER (rx >= 0), max(median_ns)
        FROM timed WHERE took_ns <= {SHORTEST_GAP_BUCKETS} * median_ns
        GROUP BY node, nic, port, b HAVING b IS NOT NULL ORDER BY node, nic, port, b
        """,
        {"node": only and only[0], "nic": only and only[1]},
    ).fetchall()
    thresholds = thresholds or RateThresholds()
    values: dict[tuple[str, str, int | None, str], Floats] = {}
    for node, nic, port, place, sent, received, median_ns in rows:
        # Read more rarely than a bucket is long, a reading speaks for the buckets before it, too.
        since = max(0, place + 1 - max(1, round(median_ns / buckets.length_ns)))
        for way, rate in (("tx", sent), ("rx", received)):
            empty = np.full(buckets.count, np.nan)
            value = values.setdefault((node, nic, port, way), empty)
            value[since : place + 1] = np.nan if rate is None else rate
    return [
        Series(
            name=clean(f"{node} {nic}" + (f"/{port}" if port not in (None, 1) else "") + f" {way}"),
            unit="B/s",
            at_ns=buckets.at_ns,
            value=value,
            baseline=thresholds.baseline(value, buckets),
            suspect=(node, nic) in suspects,
            group="nics",
            subject=clean(f"nic {node} {nic}"),
        )
        for (node, nic, port, way), value in sorted(
            values.items(), key=lambda item: item[0][:2] not in suspects
        )
    ]
