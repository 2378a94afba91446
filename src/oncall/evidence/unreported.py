"""Infer the ranks of communicator members that no node reported.

A node reports only its own memberships, so the ranks of a node that never answered are in no
communicator: one of eight members seems to have seven. As groups have a fixed stride within a job,
the ranks of the reported members often determine the missing one. If they do not, the member stays
unknown. Inferred members are noted in `recordings`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from oncall.core.nodeset import named_ranks
from oncall.evidence.coverage import GATHERED

if TYPE_CHECKING:
    import duckdb

_MOST_RANKS = 1_000_000  # a world size beyond this is a damaged recording


@dataclass(frozen=True)
class Group:
    """A communicator with its reported `members` (rank within it -> global rank)."""

    comm: int
    size: int
    role: str | None
    members: Mapping[int, int]

    @property
    def missing(self) -> list[int]:
        """Ranks within it that no node reported."""
        return [place for place in range(self.size) if place not in self.members]

    @property
    def family(self) -> tuple[object, ...]:
        """Groups of one role and size have the same stride, and no rank is in two of them. A group
        without a role is its own family."""
        return (self.role, self.size) if self.role else (self.comm,)


@dataclass(frozen=True)
class Member:
    """A member that no node reported, with its inferred rank."""

    comm: int
    place: int
    rank: int


def infer_members(groups: Sequence[Group], unreported: Set[int]) -> list[Member]:
    """The members whose rank among the `unreported` ones is certain.

    In a communicator of the whole job, the two ranks are equal; other groups have a fixed stride;
    else a rank must fit in one place only: between its neighbours, and in one group of a role.
    """
    strides = _strides(groups)
    found = _by_stride(groups, strides, unreported)
    while more := [*_by_elimination(groups, found, unreported)]:
        found += more
    return sorted(found, key=lambda member: (member.comm, member.place))


def _strides(groups: Iterable[Group]) -> dict[tuple[object, ...], int]:
    """The stride of each family whose groups agree on it."""
    shown: dict[tuple[object, ...], set[int | None]] = defaultdict(set)
    for group in groups:
        reported = sorted(group.members.items())
        for (place, rank), (next_place, next_rank) in pairwise(reported):
            stride, rest = divmod(next_rank - rank, next_place - place)
            shown[group.family].add(None if rest or stride < 1 else stride)
    return {family: stride for family, (stride, *more) in shown.items() if stride and not more}


def _by_stride(
    groups: Iterable[Group], strides: Mapping[tuple[object, ...], int], unreported: Set[int]
) -> list[Member]:
    members: dict[tuple[object, int], list[Member]] = defaultdict(list)
    for group in groups:
        stride = strides.get(group.family)
        if stride is None or not group.members:
            continue
        place, rank = next(iter(group.members.items()))
        expected = [Member(group.comm, p, rank + (p - place) * stride) for p in group.missing]
        if all(member.rank in unreported for member in expected):
            for member in expected:
                members[group.family, member.rank].append(member)
    # A rank that two groups of one role claim is in neither for sure.
    return [claims[0] for claims in members.values() if len(claims) == 1]


def _by_elimination(
    groups: Iterable[Group], found: Iterable[Member], unreported: Set[int]
) -> Iterator[Member]:
    """For each place that is left, the rank that alone fits between its neighbours."""
    named: dict[int, dict[int, int]] = defaultdict(dict)
    for member in found:
        named[member.comm][member.place] = member.rank
    taken: dict[tuple[object, ...], set[int]] = defaultdict(set)
    for group in groups:
        taken[group.family].update(named[group.comm].values())
    for group in groups:
        known = {**group.members, **named[group.comm]}
        left = [place for place in group.missing if place not in known]
        if not left:
            continue
        ordered = [known[place] for place in sorted(known)]
        ascends = ordered == sorted(ordered)
        free = unreported - taken[group.family]
        for place in left if ascends or len(left) == 1 else ():
            low = max((rank for p, rank in known.items() if p < place), default=-1)
            high = min((rank for p, rank in known.items() if p > place), default=_MOST_RANKS)
            fitting = [rank for rank in free if not ascends or low < rank < high]
            if len(fitting) == 1:
                yield Member(group.comm, place, fitting[0])
                return  # what is left for the others changes with it


# ------------------------------------------------------------------ in evidence


def name_unreported(con: duckdb.DuckDBPyConnection) -> None:
    """Add unreported members to `comms` if their rank is certain, their host to `ranks` if only
    one host did not answer, and a note of both to `recordings`.

    Call it after the memberships of all answering nodes, and the failures of others, are added.
    """
    for job, world_size in con.execute(
        "SELECT job, max(world_size) FROM jobs WHERE world_size BETWEEN 1 AND ? GROUP BY job",
        [_MOST_RANKS],
    ).fetchall():
        unreported = set(range(world_size)) - _reported(con, job)
        if not unreported:
            continue
        members = infer_members(_groups(con, job), unreported)
        _add_members(con, job, members)
        node = _host_without_answer(con, job, len(unreported))
        if node is not None:
            con.execute(
                "INSERT INTO ranks (job, rank, node) SELECT ?, unnest(?::INTEGER[]), ?",
                [job, sorted(unreported), node],
            )
        _add_notes(con, job, {member.rank for member in members}, unreported, node)


def _reported(con: duckdb.DuckDBPyConnection, job: str) -> set[int]:
    rows = con.execute(
        "SELECT rank FROM comms WHERE job = $job UNION SELECT rank FROM ranks WHERE job = $job "
        "UNION SELECT rank FROM ops WHERE job = $job",
        {"job": job},
    ).fetchall()
    return {rank for (rank,) in rows if rank is not None}


def _groups(con: duckdb.DuckDBPyConnection, job: str) -> list[Group]:
    """The communicators with consistent memberships."""
    rows = con.execute(
        """
        SELECT comm, max(size), any_value(role), map_from_entries(list(DISTINCT (comm_rank, rank)))
        FROM comms WHERE job = ? AND comm_rank IS NOT NULL AND rank IS NOT NULL
        GROUP BY comm HAVING max(size) BETWEEN 2 AND ? AND count(DISTINCT comm_rank)
            = count(DISTINCT (comm_rank, rank)) ORDER BY comm
        """,
        [job, _MOST_RANKS],
    ).fetchall()
    return [Group(*row) for row in rows]


def _add_members(con: duckdb.DuckDBPyConnection, job: str, members: Sequence[Member]) -> None:
    con.execute(
        "INSERT INTO comms (job, comm, rank, comm_rank, size, name, role) "
        "SELECT ?, m.comm, m.rank, m.place, c.size, c.name, c.role FROM (SELECT "
        "unnest(?::UBIGINT[]) AS comm, unnest(?::INTEGER[]) AS rank, unnest(?::INTEGER[]) AS place"
        ") m JOIN (SELECT comm, max(size) AS size, any_value(name) AS name, "
        "any_value(role) AS role FROM comms WHERE job = ? GROUP BY comm) c USING (comm)",
        [
            job,
            [member.comm for member in members],
            [member.rank for member in members],
            [member.place for member in members],
            job,
        ],
    )


def _host_without_answer(con: duckdb.DuckDBPyConnection, job: str, ranks: int) -> str | None:
    """The host that did not answer, if it is the only one and other hosts run as many ranks."""
    rows = con.execute(
        f"SELECT DISTINCT node FROM collectors WHERE source = '{GATHERED}' AND error IS NOT NULL "
        "AND node NOT IN (SELECT node FROM ranks WHERE job = ? AND node IS NOT NULL)",
        [job],
    ).fetchall()
    ((most,),) = con.execute(
        "SELECT max(ranks) FROM (SELECT count(DISTINCT rank) AS ranks FROM ranks "
        "WHERE job = ? AND node IS NOT NULL GROUP BY node)",
        [job],
    ).fetchall()
    fits = most is not None and ranks <= most
    return str(rows[0][0]) if len(rows) == 1 and fits else None


def _add_notes(
    con: duckdb.DuckDBPyConnection,
    job: str,
    named: Set[int],
    unreported: Set[int],
    node: str | None,
) -> None:
    notes = []
    if named:
        notes.append(
            f"{named_ranks(named)} inferred as missing members of communicators, from the ranks of "
            "the others"
        )
    if node is not None:
        notes.append(f"{named_ranks(unreported)} placed on {node}: all other hosts answered")
    con.execute(
        "INSERT INTO recordings (job, path, kind, note) "
        "SELECT ?, 'gathered', 'inferred', unnest(?::VARCHAR[])",
        [job, notes],
    )
