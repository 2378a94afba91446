"""Where chains of waiting end: the ranks that are waited for and wait for no other.

Built on the graph of `waits`: ranks point at the operation they are blocked in, operations at the
members that hold them. Each component that no edge leaves is a separate cause, so several
culprits at once are all found, and a cycle (operations in crossed order) is found as a cycle.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from types import MappingProxyType
from typing import Any

import duckdb

from oncall.analysis.common.graph import reaching, sinks
from oncall.analysis.hang.counters import lags_of
from oncall.analysis.hang.departures import departed, next_calls
from oncall.analysis.hang.ties import (
    EARLIER,
    FALLEN,
    LACKED,
    PAIR,
    SILENT,
    TEAMS,
    UNANSWERING,
    UNFINISHED,
    UNREADABLE,
    WITHOUT_TRANSFERS,
    Edges,
    Node,
    Place,
    tie_common_lags,
    tie_earlier,
    tie_groups,
    tie_unfinished,
    tie_unrecorded,
    untie_silent,
)
from oncall.evidence import relation

Waits = Mapping[Place, tuple[int, int]]  # ranks blocked in it, and for how long (ns)
Habits = Mapping[int, Mapping[tuple[int, str], int]]  # see habits.next_calls
_NOBODY = (0, 0)
_UNPREDICTED = 1 << 30


@dataclass(frozen=True)
class WaitGraph:
    """What one job's ranks and operations wait for, and which of its ranks left no data."""

    edges: Edges = field(default_factory=dict)
    waits: dict[Place, tuple[int, int]] = field(default_factory=dict)
    silent: set[int] = field(default_factory=set)


@dataclass(frozen=True)
class Root:
    """One place where waiting ends, with the culprits (empty: all members are in it)."""

    place: Place
    how: str
    culprits: tuple[int, ...]


_ROOT_COLUMNS = [
    ("job", "VARCHAR", "", "the job"),
    ("comm", "UBIGINT", "", "communicator where the cause shows"),
    ("kind", "VARCHAR", "", "coll or p2p"),
    ("seq", "BIGINT", "", "the operation that waits"),
    ("ends", "INTEGER[]", "", "ranks of a Send or Recv: one unmatched, both matched; else none"),
    ("how", "VARCHAR", "", "absent, silent (no data), cycle (deadlock), together (all are in it)"),
    ("rank", "INTEGER", "", "a culprit; NULL where all members are in it"),
    ("victims", "INTEGER", "ranks", "ranks that wait because of it, anywhere"),
    ("victim_comms", "INTEGER", "", "communicators that wait because of it"),
]


@relation(
    "hang_roots",
    reads=["blocked_operations|call_roots|mismatched_counts"],
    optional=[
        *("holders", "witnesses", "in_flight", "frontier", "halted", "operations", "members"),
        *("open_pairs", "counted_ahead", "comm_shapes", "heads", "launches"),
        *("reported_faults", "log_causes", "recordings"),
    ],
    empty_without=["blocked_operations|call_roots|mismatched_counts"],
    columns=_ROOT_COLUMNS,
    source="CCL-D 4.2.2, across communicators",
)
def hang_roots(con: duckdb.DuckDBPyConnection) -> Mapping[str, Any]:
    """The causes: one row a culprit, each culprit under the one operation that shows it best."""
    rows: list[tuple[Any, ...]] = []
    graphs, odd = _graphs(con)
    teams = defaultdict(dict, {job: dict(of) for job, of in _by_job(con, TEAMS).items()})
    for job, graph in graphs.items():
        ends = {n for component in sinks(graph.edges) for n in component if isinstance(n, int)}
        habits = next_calls(con, job, ends - graph.silent)
        roots = find_roots(graph.edges, graph.waits, graph.silent, habits, odd[job])
        for root in mirrored(roots, teams[job]):
            if root.how == "cycle":
                root = replace(root, culprits=departed(con, job, root.culprits))
            targets: list[Node] = [*root.culprits] or [root.place]
            reached = reaching(graph.edges, targets)
            ranks = {n for n in reached if isinstance(n, int)} - set(root.culprits)
            comms = {n.comm for n in reached if isinstance(n, Place)}
            place = root.place
            base = (job, place.comm, place.kind, place.seq, place.ends, root.how)
            rows += [(*base, rank, len(ranks), len(comms)) for rank in root.culprits or [None]]
    rows += _of_calls_alone(con)
    rows = _mismatched(con, rows)
    names = [column[0] for column in _ROOT_COLUMNS]
    return {name: [row[i] for row in rows] for i, name in enumerate(names)}


def _mismatched(
    con: duckdb.DuckDBPyConnection, rows: list[tuple[Any, ...]]
) -> list[tuple[Any, ...]]:
    """The roots, where counters show that members called differently only those."""
    found = con.execute(
        "SELECT job, comm, max(seq), (SELECT count(DISTINCT rank) FROM witnesses w "
        "WHERE w.job = m.job) FROM mismatched_counts m GROUP BY job, comm ORDER BY ALL"
    ).fetchall()
    jobs = {job for job, *_ in found}
    return [row for row in rows if row[0] not in jobs] + [
        (job, comm, "coll", seq, (), "together", None, ranks, 1) for job, comm, seq, ranks in found
    ]


def _of_calls_alone(con: duckdb.DuckDBPyConnection) -> Iterator[tuple[Any, ...]]:
    """The roots of such jobs; a rank that is missing in several calls, at the one it makes next."""
    found: dict[tuple[Any, ...], list[tuple[Any, ...]]] = defaultdict(list)
    for row in con.execute("FROM call_roots ORDER BY ALL").fetchall():
        found[row[0], row[6] if row[5] == "absent" else row[1:4]].append(row)
    for (job, rank), rows in found.items():
        if rows[0][5] == "absent":
            order = next_calls(con, job, [rank]).get(rank, {})
            yield min(rows, key=lambda row: order.get((row[1], row[2]), _UNPREDICTED))
        else:
            yield from rows


def _graphs(con: duckdb.DuckDBPyConnection) -> tuple[dict[str, WaitGraph], dict[str, set[int]]]:
    """Each job's graph, and its communicators whose lag is odd."""
    graphs: dict[str, WaitGraph] = defaultdict(WaitGraph)
    _add_blocked(con, graphs)
    _add_holders(con, graphs)
    for graph in graphs.values():
        tie_groups(graph.edges)
        untie_silent(graph.edges, graph.silent)
    return graphs, _tied(con, graphs)


def _add_blocked(con: duckdb.DuckDBPyConnection, graphs: dict[str, WaitGraph]) -> None:
    """Edges from each rank to the operation that it is blocked in."""
    # Of a batch, some halves may have been answered.
    unmatched: dict[tuple[Any, ...], set[int | None]] = defaultdict(lambda: {None})
    for job, comm, seq, owner, peer in con.execute(
        "SELECT job, comm, seq, owner, rank FROM holders WHERE kind = 'p2p'"
    ).fetchall():
        unmatched[job, comm, seq, owner].add(peer)
    # In order, so that equal evidence is shown alike each time.
    blocked = con.execute(
        "SELECT job, comm, kind, seq, rank, peer, coalesce(max(coalesce(entered_ns, called_ns)) "
        "OVER (PARTITION BY job) - coalesce(entered_ns, called_ns), waited_ns, 0) "
        "FROM blocked_operations WHERE rank IS NOT NULL ORDER BY ALL"
    ).fetchall()
    for job, comm, kind, seq, rank, peer, waited_ns in blocked:
        edges, waits = graphs[job].edges, graphs[job].waits
        place = Place(comm, kind, seq, (), seq)
        call = job, comm, seq, rank
        if kind == "p2p" and call in unmatched and peer in unmatched[call]:
            place = Place(comm, kind, seq, (rank,), seq)
        elif kind == "p2p":
            ends = (rank,) if peer is None else tuple(sorted((rank, peer)))
            place = Place(comm, kind, 0, ends, seq)
        edges.setdefault(rank, []).append(place)
        edges.setdefault(place, [])
        count, longest_ns = waits.get(place, (0, 0))
        waits[place] = count + 1, max(longest_ns, waited_ns)


def _add_holders(con: duckdb.DuckDBPyConnection, graphs: dict[str, WaitGraph]) -> None:
    """Edges from each operation to the ranks that keep it from completing."""
    held = con.execute(
        "SELECT job, comm, kind, seq, owner, rank, how FROM holders WHERE rank IS NOT NULL "
        "ORDER BY ALL"
    ).fetchall()
    for job, comm, kind, seq, owner, rank, how in held:
        place = Place(comm, kind, seq, () if owner is None else (owner,), seq)
        graphs[job].edges.setdefault(place, []).append(rank)
        if how == "silent":
            graphs[job].silent.add(rank)


def _tied(con: duckdb.DuckDBPyConnection, graphs: dict[str, WaitGraph]) -> dict[str, set[int]]:
    """Edges that `ties` infers from what is absent; the communicators of each job whose lag is
    odd."""
    gone, fallen = _ranks(con, "SELECT job, rank FROM halted"), _ranks(con, FALLEN)
    unfinished, silent = _ranks(con, UNFINISHED), _ranks(con, SILENT)
    unreadable = _ranks(con, UNREADABLE)
    lags = lags_of(con)
    unanswering, without_transfers = _by_job(con, UNANSWERING), _by_job(con, WITHOUT_TRANSFERS)
    for job, calls in unanswering.items():
        for comm, seq, rank in calls:
            graphs[job].edges.setdefault(Place(comm, "coll", seq, (), seq), []).append(rank)
            graphs[job].silent.add(rank)
            gone[job].add(rank)
    lacked: dict[str, list[tuple[int, Place, int]]] = defaultdict(list)
    for job, rank, comm, kind, seq, ends, member in con.execute(LACKED).fetchall():
        number = 0 if len(ends) == PAIR else seq
        lacked[job].append((rank, Place(comm, kind, number, tuple(ends), seq), member))
    earlier: dict[str, list[tuple[Place, int, Place]]] = defaultdict(list)
    for job, rank, *calls in con.execute(EARLIER).fetchall():
        place, before = (Place(comm, "coll", seq, (), seq) for comm, seq in calls)
        earlier[job].append((place, rank, before))
    odd: dict[str, set[int]] = {}
    for job, graph in graphs.items():
        dead = gone[job] | fallen[job]
        graph.silent.update(silent[job])
        tie_earlier(graph.edges, earlier[job])
        tie_unfinished(graph.edges, lacked[job], dead | silent[job])
        unwritten = graph.silent - unreadable[job]
        both = job in without_transfers
        tie_unrecorded(graph.edges, unwritten, unfinished[job], dead, both=both)
        odd[job] = tie_common_lags(graph.edges, lags[job], gone[job], always=job in unanswering)
    return odd


def _ranks(con: duckdb.DuckDBPyConnection, select: str) -> defaultdict[str, set[int]]:
    """The ranks of each job."""
    found = _by_job(con, select).items()
    return defaultdict(set, {job: {rank for (rank,) in ranks} for job, ranks in found})


def _by_job(con: duckdb.DuckDBPyConnection, select: str) -> dict[str, list[Any]]:
    """The rows of a SELECT by their first column, the job."""
    rows: dict[str, list[Any]] = {}
    for job, *row in con.execute(select).fetchall():
        rows.setdefault(job, []).append(tuple(row))
    return rows


def find_roots(
    edges: Edges,
    waits: Waits,
    silent: set[int],
    habits: Habits = MappingProxyType({}),
    odd: Collection[int] = (),
) -> list[Root]:
    """Every place where waiting ends, the most waited-for first.

    Culprits absent from one operation are named together; each culprit is named once, on a
    communicator that is `odd` before all others, at the operation that shows most culprits, then
    at the one that it would have called next by its `habits`, then at the one where the waiting
    began. Those without data may wait for one another: the best of these shows them all.
    """
    roots: list[Root] = []
    alone: set[int] = set()
    for component in sinks(edges):
        places = [node for node in component if isinstance(node, Place)]
        ranks = sorted(node for node in component if isinstance(node, int))
        if places and ranks and _is_cycle(places, edges):
            # Who goes against the stream shows where most go with it.
            shown = min(places, key=lambda p: (-waits.get(p, _NOBODY)[0], _order(p, waits)))
            roots.append(Root(shown, "cycle", tuple(ranks)))
        elif places:
            roots.append(Root(min(places, key=lambda p: _order(p, waits)), "together", ()))
        else:
            alone.update(ranks)
    held = {place: holders for place, holders in edges.items() if isinstance(place, Place)}
    at_odd = {place: holders for place, holders in held.items() if place.comm in odd}
    shown_there = {
        rank for rank in chain(*at_odd.values()) if rank in alone and isinstance(rank, int)
    }
    best = [
        *_shown_best(shown_there, at_odd, waits, habits),
        *_shown_best(alone - shown_there, held, waits, habits),
    ]
    unseen = [place for place, ranks in best if ranks & silent]
    roots += [
        Root(place, "absent", tuple(sorted(ranks - silent)))
        for place, ranks in best
        if ranks - silent
    ]
    roots += [Root(place, "silent", tuple(sorted(alone & silent))) for place in unseen[:1]]
    return sorted(roots, key=lambda root: -waits.get(root.place, _NOBODY)[0])


def mirrored(roots: Sequence[Root], teams: Mapping[int, int]) -> Iterator[Root]:
    """The roots; the ranks of a tensor group do the same work in step, each with a peer of its own,
    so transfers that they did not call under one number are one place: that of the first."""
    shown: dict[tuple[int, int], Place] = {}
    for root in sorted(roots, key=lambda one: one.place):
        team = teams.get(root.culprits[0]) if root.culprits else None
        if team is not None and root.place.kind == "p2p" and root.how == "absent":
            root = replace(root, place=shown.setdefault((team, root.place.seq), root.place))
        yield root


def _is_cycle(places: Sequence[Place], edges: Edges) -> bool:
    """Whether each waits for a call that another never made, or makes only after its own.

    A send and a receive that have both been called complete in time: where a chain of waiting runs
    through one, it is a step in progress, not a deadlock.
    """
    return all(
        len(place.ends) < PAIR and any(rank not in place.ends for rank in edges[place])
        for place in places
    )


def _shown_best(
    alone: set[int],
    places: Mapping[Place, Sequence[Node]],
    waits: Waits,
    habits: Habits,
) -> Iterator[tuple[Place, set[int]]]:
    """Culprits that wait for no other, each under the operation that shows most of them."""
    shows: dict[Place, set[int]] = {}
    for place, holders in places.items():
        held = alone.intersection(one for one in holders if isinstance(one, int))
        if held:
            shows[place] = held
    left = set(alone)
    best = [(_worse(place, held, waits, habits), place) for place, held in shows.items()]
    heapq.heapify(best)
    while left and best:
        rank, place = heapq.heappop(best)
        named = shows[place] & left
        if named and -rank[0] > len(named):
            # Some of its culprits have been named since: it may not be the best any more.
            heapq.heappush(best, (_worse(place, named, waits, habits), place))
            continue
        left -= named
        yield place, named


def _worse(place: Place, held: set[int], waits: Waits, habits: Habits) -> tuple[int, ...]:
    """Sorts operations that show more culprits first, then those they would have called first."""
    call = place.comm, place.kind
    return (
        -len(held),
        min(habits.get(rank, {}).get(call, _UNPREDICTED) for rank in held),
        *_order(place, waits),
    )


def _order(place: Place, waits: Waits) -> tuple[int, ...]:
    """Sorts the first unmet call first: a recorder may know neither number nor communicator."""
    count, longest_ns = waits.get(place, _NOBODY)
    order = (-longest_ns, -count, place.comm or 0, place.number or 0, place.seq or 0)
    return (*order, place.kind == "p2p", *place.ends)
