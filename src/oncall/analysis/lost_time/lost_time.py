"""The account of lost time: without which cause iterations would have been shorter, and how much.

The smallest set of causes that explains most of the loss wins: the largest gain first, all others
replayed again without it. Uncertainty comes from resampling iterations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import duckdb
import numpy as np

from oncall.analysis.lost_time.baselines import account_of
from oncall.analysis.lost_time.causes import (
    Class,
    Entry,
    candidates_by,
    excess_of_own,
    excess_of_transfers,
    gains_of_own,
    gains_of_transfers,
    replayed,
)
from oncall.analysis.lost_time.clocks import on_one_axis
from oncall.analysis.lost_time.graph import graph_of, ordered
from oncall.analysis.lost_time.groups import groups_of
from oncall.analysis.lost_time.limits import Limits
from oncall.analysis.lost_time.measured import measured, median
from oncall.analysis.lost_time.peers import with_peers
from oncall.analysis.lost_time.programs import Ints, Programs, Times, read_programs
from oncall.analysis.lost_time.segments import cuts, like_segments
from oncall.analysis.lost_time.waiting import lengths, spent
from oncall.evidence import params_of, relation

_RESAMPLED = 200


@dataclass(frozen=True)
class Books:
    """All classes of a job, and whether operations told how long they took."""

    classes: list[Class]
    timed: bool

    @property
    def length_ns(self) -> Times:
        return np.concatenate([one.length_ns for one in self.classes])

    @property
    def replayed_ns(self) -> Times:
        return np.concatenate([one.replayed_ns for one in self.classes])

    @property
    def begin_ns(self) -> Ints:
        return np.concatenate([one.begin_ns for one in self.classes])

    def joined(self, values: Callable[[Class], Times]) -> Times:
        """Values of each rank and segment, of all classes (r, s)."""
        return np.concatenate([values(one) for one in self.classes], axis=1)

    def shares(self, gains: Callable[[Class], Times]) -> Times:
        """Gains as shares of the segments, of all classes (candidates, s)."""
        whole = np.maximum(self.length_ns, self.replayed_ns)
        return np.asarray(self.joined(gains) / whole)


def books_of(programs: Programs, limits: Limits) -> Books | None:
    """The classes that matter, each accounted for; None if there are no two like segments, or all
    ranks wait for all others in every call, where the rounds say it all."""
    cut = cuts(programs, limits)
    programs = with_peers(programs, cut)
    shapes = like_segments(programs, cut, limits)
    graphs = [graph_of(programs, one) for one in shapes]
    if any(graph.one_chain for graph in graphs):
        return None
    times = [
        measured(programs, one, graph, limits) for one, graph in zip(shapes, graphs, strict=True)
    ]
    timed = any(one.timed for one in times)
    if times and not timed:
        times = on_one_axis(times, limits)
    found: list[Class] = []
    lead: int | None = None
    for segments, graph, each in zip(shapes, graphs, times, strict=True):
        groups = groups_of(programs, graph, limits)
        told = spent(graph, groups, each, lead, programs.on_device, limits)
        if told is None:
            continue
        order = ordered(graph, told.asynchronous)
        if not order.complete:
            continue
        lead = told.lead if lead is None else lead
        account = account_of(graph, groups, told, each.timed, limits)
        begin = np.where(
            segments.first >= 0, programs.at_ns[segments.first], np.iinfo(np.int64).max
        )
        found.append(
            Class(
                order=order,
                account=account,
                begin_ns=begin.min(1),
                length_ns=lengths(graph, each),
                replayed_ns=replayed(order, account.own, account.rounds, account.transfers),
            )
        )
    if not found:
        return None
    longest = max(float(np.median(one.length_ns)) for one in found)
    kept = [one for one in found if np.median(one.length_ns) > limits.short * longest]
    return Books(kept, timed)


def entries_of(books: Books, limits: Limits) -> list[Entry]:
    """Causes, the largest gain first; then the transfers that are slow beside them."""
    own: list[Entry] = []
    candidates = candidates_by(books.joined(excess_of_own).sum(1), limits)
    for _ in range(limits.most_causes):
        removed = [rank for entry in own for rank in entry.ranks]
        share = books.shares(partial(gains_of_own, candidates=candidates, removed=removed))
        share[np.isin(candidates, removed)] = 0
        total = np.where(share >= limits.least_gain / 2, share, 0).sum(1)
        best = int(np.argmax(total))
        entry = _entry(books, limits, "own", (int(candidates[best]),), share[best])
        rest = np.delete(total, best)
        if entry is None or (len(rest) and total[best] < limits.stands_out * rest.max()):
            break
        own.append(entry)
    return own + _slow_transfers(books, limits, own)


def _slow_transfers(books: Books, limits: Limits, own: list[Entry]) -> list[Entry]:
    """The rank whose transfers cost most, or those that share all slow ones with it."""
    excesses = books.joined(excess_of_transfers)
    ranks = len(excesses)
    candidates = candidates_by(excesses.sum(1), limits)
    share = books.shares(partial(gains_of_transfers, candidates=candidates))
    total = np.where(share >= limits.least_gain / 2, share, 0).sum(1)
    best = int(np.argmax(total))
    concerned = share[best] >= limits.least_gain
    if not concerned.any():
        return []
    near = candidates[total >= limits.alike * total[best]]
    # Of what the worst of them shows, in most iterations: what happens once tells nobody apart.
    excess = excesses[np.ix_(near, concerned)]
    part = median(excess / np.maximum(excess.max(0), 1.0), 1)
    same = near[part >= limits.same]
    known = [entry.ranks[0] for entry in own]
    mine = [
        int(near[at]) for at in np.flatnonzero(part >= limits.own_and_link) if near[at] in known
    ]
    # Calls alone hardly show transfers: more is asked of them.
    fewest = 1 if books.timed else limits.calls_alone
    least = limits.least_gain * (1 if books.timed else limits.calls_gain)
    blamed = tuple(mine or map(int, same))
    entry = _entry(books, limits, "transfer", blamed, share[best])
    if (
        entry is None
        or entry.segments <= fewest
        or entry.share < least
        or len(same) > max(2, ranks // 2)
    ):
        return []
    return [entry]


def _entry(
    books: Books, limits: Limits, cause: str, ranks: tuple[int, ...], share: Times
) -> Entry | None:
    """The verdict on one cause, if enough segments gain enough; `share` (s,)."""
    concerned = share >= limits.least_gain
    number = int(concerned.sum())
    if not number:
        return None
    values = share[concerned]
    drawn = np.random.default_rng(0).choice(values, (_RESAMPLED, number)).mean(1)
    low = float(np.quantile(drawn, limits.certain))
    alone = len(share) <= 3 and values.mean() > limits.one_segment
    if low < limits.least_gain or (number < 2 and not alone):
        return None
    return Entry(
        cause=cause,
        ranks=ranks,
        share=float(values.mean()),
        low=low,
        segments=number,
        gain_ns=float((share * np.maximum(books.length_ns, books.replayed_ns))[concerned].sum()),
        begin_ns=int(books.begin_ns[concerned].min()),
    )


@relation(
    "lost_time",
    reads=["operations", "members"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("entry", "INTEGER", "", "number of the cause, the largest first; 0: the whole account"),
        ("cause", "VARCHAR", "", "own: work of a rank; transfer; account: what was accounted for"),
        ("rank", "INTEGER", "", "a rank that has it, or that the evidence cannot tell from it"),
        ("tied", "INTEGER", "ranks", "how many share the entry"),
        ("share", "DOUBLE", "ratio", "iterations concerned would be so much shorter without it"),
        ("low", "DOUBLE", "ratio", "5 % quantile of the share"),
        ("iterations", "INTEGER", "", "iterations concerned; of an account: all it covers"),
        ("of_iterations", "INTEGER", "", "iterations in the account"),
        ("gain_ns", "BIGINT", "ns", "lost in all of them"),
        ("iteration_ns", "BIGINT", "ns", "median length of an iteration"),
        ("at_ns", "BIGINT", "ns", "begin of the first one concerned, Unix time"),
        ("replay_error", "DOUBLE", "ratio", "median deviation of replayed from measured lengths"),
        ("timed", "BOOLEAN", "", "operations told how long they took"),
    ],
    source="LOST_TIME: replay of the execution graph; VenusTrace Appendix A; beyond the papers",
    params=params_of(Limits),
)
def lost_time(con: duckdb.DuckDBPyConnection, **params: Any) -> Mapping[str, Any]:
    """What made iterations longer than they had to be, by cause, with its gain when removed."""
    limits = Limits(**params)
    rows: list[dict[str, Any]] = []
    for (job,) in con.execute("SELECT DISTINCT job FROM operations ORDER BY job").fetchall():
        programs = read_programs(con, job, limits)
        books = books_of(programs, limits) if programs is not None else None
        if programs is None or books is None:
            continue
        length = books.length_ns
        common = {
            "job": job,
            "of_iterations": len(length),
            "iteration_ns": int(np.median(length)),
            "replay_error": float(np.median(np.abs(books.replayed_ns / length - 1))),
            "timed": books.timed,
        }
        rows.append(
            common
            | {"entry": 0, "cause": "account", "rank": None, "tied": 0, "share": 0.0, "low": 0.0}
            | {"iterations": len(length), "gain_ns": 0, "at_ns": int(books.begin_ns.min())}
        )
        for number, entry in enumerate(entries_of(books, limits), 1):
            rows += [
                common
                | {"entry": number, "cause": entry.cause, "rank": int(programs.ranks[rank])}
                | {"tied": len(entry.ranks), "share": entry.share, "low": entry.low}
                | {"iterations": entry.segments, "gain_ns": int(entry.gain_ns)}
                | {"at_ns": entry.begin_ns}
                for rank in entry.ranks
            ]
    names = (
        *("job", "entry", "cause", "rank", "tied", "share", "low", "iterations", "of_iterations"),
        *("gain_ns", "iteration_ns", "at_ns", "replay_error", "timed"),
    )
    return {name: [row[name] for row in rows] for name in names}
