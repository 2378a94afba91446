"""Where in the pipeline each rank is, by the hypothesis that explains all ranks' calls.

Every way to know it is tried, the most certain first. The pipeline's communicator has one rank of
each stage, in order. Where transfers have communicators of two, the distance to a rank's neighbours
shows how many ranks a stage has, since pipelines are the outermost dimension by default
(Megatron-LM's order tp-cp-ep-dp-pp).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import duckdb
import numpy as np

from oncall.analysis.tasks.iteration_bounds import Block
from oncall.analysis.tasks.rank_calls import RECV, SEND, UNKNOWN, RankCalls
from oncall.analysis.tasks.schedule_fit import (
    Hypothesis,
    Layout,
    Seats,
    Seen,
    Stated,
    explained,
    fit,
    seen_of,
)
from oncall.analysis.tasks.schedules import Array
from oncall.analysis.tasks.tensor_patterns import most_frequent


@dataclass(frozen=True)
class Place:
    """A rank's place among the stages of its pipeline, and what it does in an iteration."""

    stage: int
    stages: int
    chunks: int
    schedule: str
    micro_batches: int | None
    fewest_micro_batches: int | None = None  # of any iteration, where batches grow

    @property
    def is_end(self) -> bool:
        """The first or the last of the stages."""
        return self.stage in (0, self.stages - 1)

    @property
    def transfers_each(self) -> int:
        """How often it sends, and receives, for each micro-batch of an iteration, and in each pass
        forward of an evaluation both together."""
        return 2 * self.chunks - self.is_end


def directions(calls: RankCalls, *, both_ways: bool = False) -> Array | None:
    """For each call whether the pipeline's transfer goes with forwards: to the next stage or from
    the one before (n,); None where the other sides do not show it.

    `both_ways`: there are two stages that take turns, so that the next is the one before, too.
    """
    peers = np.unique(calls.peer[calls.use <= RECV]).tolist()
    if not peers or peers[0] == UNKNOWN or len(peers) > 2 or both_ways:
        return None
    onward = calls.peer == _following(calls.rank, peers)
    return np.asarray(np.where(calls.use == SEND, onward, ~onward))


def _following(rank: int, peers: Sequence[int]) -> int:
    """The rank of the next stage (UNKNOWN: none): stages follow one another in the order of ranks,
    and after the last comes the first again, where chunks take turns."""
    if len(peers) == 1:
        return peers[0] if peers[0] > rank else UNKNOWN
    above = [peer for peer in peers if peer > rank]
    return min(above) if above else min(peers)


@dataclass(frozen=True)
class Found:
    """A rank's calls and the blocks in them."""

    calls: RankCalls
    blocks: list[Block]

    @property
    def is_chained(self) -> bool:
        """The rank sends to other stages, or receives from them."""
        return bool((self.calls.use <= RECV).any())


@dataclass(frozen=True)
class Seated:
    """A rank in a pipeline, its blocks, and which of its transfers go with forwards (n,); None
    where that is not known. It stands for so many `ranks` that are alike and have such a place."""

    calls: RankCalls
    blocks: list[Block]
    place: Place
    forward: Array | None
    ranks: int = 1


def seat(one: Found, place: Place, ranks: int = 1) -> Seated:
    """A rank at its place. At an end of the pipeline it exchanges both with the same stage, and a
    Send is a forward's, or a gradient's."""
    forward = directions(one.calls, both_ways=place.stages == 2 and place.chunks > 1)
    if forward is None and place.chunks == 1 and place.is_end:
        forward = (one.calls.use == SEND) == (place.stage == 0)
    return Seated(one.calls, one.blocks, place, forward, ranks)


def find_places(ranks: Sequence[Found], known: Memberships, stated: Stated) -> dict[int, Place]:
    """The places of a job's ranks that are here, by the hypothesis that explains all of them."""
    ranks = [one for one in ranks if one.is_chained]
    if not ranks:
        return {}
    looks = _looks(ranks)
    found = fit(looks, layouts([one.calls for one in ranks], known, stated), stated)
    return {} if found is None else _by_one(found, looks, stated)


def _by_one(hypothesis: Hypothesis, looks: Sequence[Seen], stated: Stated) -> dict[int, Place]:
    """The places of all ranks that the hypothesis knows of."""
    seats, chunks = hypothesis.layout.seats, hypothesis.chunks
    looks = [one for one in looks if one.rank in seats]
    own = {one.rank: one.micro_batches(seats[one.rank], chunks) for one in looks}
    common = (
        most_frequent(np.array([count for count in own.values() if count])) or stated.micro_batches
    )
    # Inside the pipeline, evaluations look like more of the same where no other side is known.
    counts = [
        count
        for one in looks
        if one.directed or seats[one.rank][0] in (0, seats[one.rank][1] - 1)
        for count in explained(hypothesis, one)
    ]
    fewest = min(counts, default=None)
    return {
        rank: Place(*seats[rank], chunks, hypothesis.schedule, count or common, fewest)
        for rank, count in own.items()
    }


def _looks(ranks: Sequence[Found]) -> list[Seen]:
    seen: dict[int, Seen] = {}
    for one in ranks:
        if one.calls.alike not in seen:
            seen[one.calls.alike] = _look(one)
    return [replace(seen[one.calls.alike], rank=one.calls.rank) for one in ranks]


def _look(one: Found) -> Seen:
    """A rank's iterations. If it has one neighbour, all its Sends go in one direction, unless the
    pipeline is a ring of two stages: then the direction is unknown."""
    neighbours = np.unique(one.calls.peer[one.calls.use <= RECV])
    return seen_of(one.calls, one.blocks, directions(one.calls) if len(neighbours) > 1 else None)


# ------------------------------------------------------------------ layouts

STATED = "what is stated of it"
COMMUNICATORS = "its place in the communicator that it sends in"
ORDER = "the order of ranks"


@dataclass(frozen=True)
class Memberships:
    """What is known of a job's communicators and size.

    `stated`: stage and number of stages of ranks by the role of a communicator; `places`: place and
    size of (communicator, rank).
    """

    world_size: int | None = None
    stated: Seats = field(default_factory=dict)
    places: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)


def read_memberships(con: duckdb.DuckDBPyConnection, job: str, comms: Sequence[int]) -> Memberships:
    """From relation members and table jobs; `comms`: those that the pipeline may call in."""
    ((world_size,),) = con.execute(
        "SELECT any_value(world_size) FROM jobs WHERE job = ?", [job]
    ).fetchall()
    stated = con.execute(
        """
        SELECT rank, any_value(comm_rank), any_value(size) FROM members
        WHERE job = ? AND (lower(role) = 'pp' OR lower(coalesce(role, name)) LIKE '%pipeline%')
            AND comm_rank IS NOT NULL AND size IS NOT NULL
        GROUP BY rank HAVING count(*) = 1
        """,
        [job],
    ).fetchall()
    used = con.execute(
        """
        SELECT comm, rank, comm_rank, greatest(max(size) OVER same, count(*) OVER same)
        FROM members WHERE job = ? AND comm IN (SELECT unnest(?::UBIGINT[]))
            AND comm_rank IS NOT NULL
        WINDOW same AS (PARTITION BY comm)
        """,
        [job, list(comms)],
    ).fetchall()
    return Memberships(
        world_size,
        {rank: (stage, stages) for rank, stage, stages in stated},
        {(comm, rank): (place, size) for comm, rank, place, size in used},
    )


def pipeline_comms(calls: RankCalls) -> list[int]:
    """The communicators that a rank's Sends and Recvs of the pipeline are in."""
    used = sorted({*calls.comm[calls.partners].tolist()})
    return [comm for comm in (calls.comms[place] for place in used) if comm is not None]


def layouts(ranks: Sequence[RankCalls], known: Memberships, stated: Stated) -> list[Layout]:
    """The possible layouts of these ranks, without duplicates."""
    found: list[Layout] = []
    for layout in _layouts(ranks, known, stated):
        if all(layout.seats != other.seats for other in found):
            found.append(layout)
    return found


def _layouts(ranks: Sequence[RankCalls], known: Memberships, stated: Stated) -> Iterator[Layout]:
    numbers = [calls.rank for calls in ranks]
    world_size = known.world_size or 1 + max(numbers)
    seats: Seats = {}
    if stated.stages is not None and world_size % stated.stages == 0:
        seats = _in_order(numbers, world_size, stated.stages)
    yield Layout(
        seats | {rank: known.stated[rank] for rank in numbers if rank in known.stated}, STATED
    )
    agrees = stated.stages is None
    yield Layout(_by_communicator(ranks, known), COMMUNICATORS, agrees)
    apart = {abs(peer - calls.rank) for calls in ranks for peer in _peers(calls)}
    nearest = min(apart, default=None)
    possible = [size for size in range(1, world_size) if world_size % size == 0]
    for size in possible if nearest is None else [s for s in possible if s == nearest]:
        seats = _in_order(numbers, world_size, world_size // size)
        yield Layout(seats, ORDER, agrees)


def _in_order(ranks: Sequence[int], world_size: int, stages: int) -> Seats:
    return {rank: (rank // (world_size // stages), stages) for rank in ranks}


def _by_communicator(ranks: Sequence[RankCalls], known: Memberships) -> Seats:
    """By the one communicator in which each rank sends and receives; neighbours are next to it."""
    seats: Seats = {}
    for calls in ranks:
        comms = pipeline_comms(calls)
        seat = known.places.get((comms[0], calls.rank)) if len(comms) == 1 else None
        if seat is None:
            continue
        place, size = seat
        peers = [known.places.get((comms[0], peer)) for peer in _peers(calls)]
        steps = {(peer[0] - place) % size for peer in peers if peer is not None}
        if steps <= {1, size - 1}:
            seats[calls.rank] = seat
    return seats


def _peers(calls: RankCalls) -> list[int]:
    """The ranks that a rank exchanges data with, as far as known."""
    stated = calls.partners[calls.peer_recorded[calls.partners].astype(np.bool_)]
    return sorted({*calls.peer[stated].tolist()} - {UNKNOWN})
