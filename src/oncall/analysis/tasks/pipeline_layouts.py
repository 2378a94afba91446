"""Where ranks may be in the pipeline: every way to find that out, the most certain first.

The pipeline's communicator has one rank of each stage, in order. Where transfers have communicators
of two, the distance to a rank's neighbours shows how many ranks a stage has, since pipelines are
the outermost dimension by default (Megatron-LM's order tp-cp-ep-dp-pp).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import duckdb
import numpy as np

from oncall.analysis.common.group_names import role_named
from oncall.analysis.tasks.rank_calls import UNKNOWN, RankCalls
from oncall.analysis.tasks.schedule_fit import Layout, Seats, Stated

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
        f"""
        SELECT rank, any_value(comm_rank), any_value(size) FROM members
        WHERE job = ? AND {role_named()} = 'pp' AND comm_rank IS NOT NULL AND size IS NOT NULL
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
