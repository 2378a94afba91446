"""Who is late in jobs whose hosts enqueue a whole iteration and wait at its end only."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from tests.together import Job

from .jobs import MS, UNIX_NS

RANKS, SHARD, LAYERS, ITERATIONS = 8, 4, 5, 12
LAUNCH_MS = 1
Work = Callable[[int, int], float]  # (iteration, rank) -> ms a layer
WORLD = tuple(range(RANKS))
SHARDS = [WORLD[at : at + SHARD] for at in range(0, RANKS, SHARD)]
REPLICAS = [WORLD[at::SHARD] for at in range(SHARD)]


def even(iteration: int, rank: int) -> float:
    return 10 + 2 * (iteration % 3) + 0 * rank


# Groups that call in each layer, by communicator. Of two streams one gathers in each shard group,
# the other reduces among replicas.
ONE_GROUP = [(1, WORLD)]
TWO_STREAMS = [
    *((2 + at, group) for at, group in enumerate(SHARDS)),
    *((10 + at, group) for at, group in enumerate(REPLICAS)),
]


def played(
    work: Work, groups: Any = ONE_GROUP, *, overlaps: bool, pause: Work | None = None,
    timed: bool = True, launch_ms: float = LAUNCH_MS, transfer: Work | None = None,
    iterations: int = ITERATIONS,
) -> dict[str, Any]:  # fmt: skip
    """Columns of `ops` as Flight Recorder has them: when hosts called, and with `timed` how long
    the device was in it. Every layer is computed, then the groups call; ranks compute on beside
    calls if it `overlaps`. Then all reduce and hosts wait. `pause`: of the host, at the begin.
    `transfer`: (iteration, communicator) -> ms of a call once its last member came."""
    rows: list[dict[str, Any]] = []
    device, host = [0.0] * RANKS, [0.0] * RANKS
    seqs: dict[int, int] = {}
    stream: dict[tuple[int, int], float] = {}

    def call(comm: int, members: tuple[int, ...], count: int, iteration: int) -> dict[int, float]:
        seq = seqs[comm] = seqs.get(comm, -1) + 1
        came = {rank: max(device[rank], stream.get((comm, rank), 0.0)) for rank in members}
        over = max(came.values()) + (transfer(iteration, comm) if transfer else 1)
        for rank in members:
            host[rank] += launch_ms
            took = {"duration_ns": int((over - came[rank]) * MS)} if timed else {}
            rows.append(
                {"job": "j", "comm": comm, "seq": seq, "rank": rank, "kind": "coll"}
                | {"op": "AllReduce", "count": count, "done": True, **took}
                | {"enqueued_ns": UNIX_NS + int((host[rank] + 7 * (rank % 3)) * MS)}
            )
            stream[comm, rank] = over
        return dict.fromkeys(members, over)

    for iteration in range(iterations):
        for rank in WORLD:
            host[rank] += pause(iteration, rank) if pause else 0
            device[rank] = max(device[rank], host[rank])
        ends = [0.0] * RANKS
        for _ in range(LAYERS):
            for rank in WORLD:
                device[rank] += work(iteration, rank)
            for comm, members in groups:
                for rank, over in call(comm, members, 4096, iteration).items():
                    ends[rank] = max(ends[rank], over)
            if not overlaps:
                device = [max(a, b) for a, b in zip(device, ends, strict=True)]
        device = [max(a, b) for a, b in zip(device, ends, strict=True)]
        for rank, over in call(0, WORLD, 1, iteration).items():
            device[rank] = host[rank] = over
    return {name: [row[name] for row in rows] for name in rows[0]}


def late(job: Job, columns: dict[str, Any]) -> tuple[tuple[int, ...], float]:
    """The ranks that cost iterations time, and the share."""
    job.append("ops", columns)
    rows = job.found("delay_causes", "rank, share", "cause = 'own'")
    return tuple(rank for rank, _ in rows), rows[0][1] if rows else 0.0


@pytest.mark.parametrize("overlaps", [True, False])
@pytest.mark.parametrize("groups", [ONE_GROUP, TWO_STREAMS])
def test_a_slow_rank_is_named_whatever_overlaps(job: Job, groups: Any, overlaps: bool) -> None:
    draw = random.Random(1)

    def work(iteration: int, rank: int) -> float:
        slow = 1.6 if rank == 5 and iteration > 4 else 1.0
        return slow * (even(iteration, rank) + draw.random())

    ranks, share = late(job, played(work, groups, overlaps=overlaps))
    assert ranks == (5,)
    # 6 to 8 of 16 to 22 ms a layer: no lateness is counted twice, and some not at all.
    assert 0.05 < share < 0.42


@pytest.mark.parametrize("overlaps", [True, False])
@pytest.mark.parametrize("groups", [ONE_GROUP, TWO_STREAMS])
def test_uneven_samples_are_nobodys_fault(job: Job, groups: Any, overlaps: bool) -> None:
    draw = random.Random(1)
    samples = {(i, r): draw.uniform(0.8, 1.3) for i in range(ITERATIONS) for r in WORLD}

    def work(iteration: int, rank: int) -> float:
        return 12 * samples[iteration, rank] + draw.random()

    assert late(job, played(work, groups, overlaps=overlaps))[0] == ()


def test_waits_in_two_calls_made_at_once_count_once(job: Job) -> None:
    draw = random.Random(1)

    def work(_iteration: int, rank: int) -> float:
        return 10 + 3 * (rank == 5) + 0.3 * draw.random()

    both = [*TWO_STREAMS, (1, WORLD)]
    ranks, share = late(job, played(work, both, overlaps=False, launch_ms=0.001))
    assert ranks == (5,)
    # 3 of 14 ms a layer; all others wait for it in three calls at once.
    assert 0.1 < share < 0.25


def test_a_slow_host_is_one_cause(job: Job) -> None:
    def work(iteration: int, rank: int) -> float:
        return even(iteration, rank) * (1.5 if rank >= 4 and iteration > 2 else 1)

    assert late(job, played(work, ONE_GROUP, overlaps=True))[0] == (4, 5, 6, 7)


REPLICATE = ((0, 1, 2, 3), (4, 5, 6, 7))
PAIRS = [
    *((2 + at, (at, at + 4)) for at in range(4)),
    *((10 + at, one) for at, one in enumerate(REPLICATE)),
]


def causes(job: Job, columns: dict[str, Any]) -> list[tuple[str, int]]:
    job.append("ops", columns)
    return job.found("delay_causes", "cause, rank")


@pytest.mark.parametrize(("slow", "blamed"), [(3, (1, 5)), (None, ())])
def test_a_link_that_is_slow_from_the_start_shows_beside_like_groups(
    job: Job, slow: int | None, blamed: tuple[int, ...]
) -> None:
    """Four pairs are alike, and wait for one another in groups of four."""

    def transfer(_iteration: int, comm: int) -> float:
        return 40 if comm == slow else 1

    columns = played(even, PAIRS, overlaps=True, transfer=transfer)
    columns["bytes"] = [4 << 20] * len(columns["rank"])
    assert causes(job, columns) == [("transfer", rank) for rank in blamed]


def test_a_link_that_became_slow_shows_beside_siblings_in_a_few_iterations(job: Job) -> None:
    def transfer(iteration: int, comm: int) -> float:
        return 40 if comm == 3 and iteration >= ITERATIONS - 4 else 1

    columns = played(even, PAIRS, overlaps=True, transfer=transfer)
    assert causes(job, columns) == [("transfer", 1), ("transfer", 5)]


def test_a_rank_whose_partner_left_no_dump_is_in_no_slow_transfer(job: Job) -> None:
    """It was in the calls of its pair for as long as it waited for its partner."""

    def work(iteration: int, rank: int) -> float:
        return even(iteration, rank) + (30 if rank == 5 and iteration % 3 else 0)

    columns = played(work, PAIRS, overlaps=True)
    kept = [at for at, rank in enumerate(columns["rank"]) if rank != 5]
    pair = [(comm, rank) for comm, members in PAIRS for rank in members]
    job.append("ops", {name: [values[at] for at in kept] for name, values in columns.items()})
    job.append("comms", {"comm": [comm for comm, _ in pair], "rank": [rank for _, rank in pair]})
    assert ("transfer", 1) not in job.found("delay_causes", "cause, rank")


def test_one_long_stop_is_an_event_and_no_slow_rank(job: Job) -> None:
    def pause(iteration: int, rank: int) -> float:
        return 900 if (iteration, rank) == (6, 0) else 0

    assert late(job, played(even, overlaps=True, pause=pause))[0] == ()


@pytest.mark.parametrize("timed", [True, False])
def test_a_host_that_stalls_now_and_then_is_seen_by_calls_alone(job: Job, timed: bool) -> None:
    def pause(iteration: int, rank: int) -> float:
        return 80 if rank == 3 and iteration % 3 == 1 else 0

    assert late(job, played(even, overlaps=True, pause=pause, timed=timed))[0] == (3,)


def test_a_host_that_calls_late_ahead_of_its_device_costs_nothing(job: Job) -> None:
    hidden = played(even, overlaps=True, timed=False)
    # Its calls are late; its device, and so the iteration, is not.
    hidden["enqueued_ns"] = [
        at + (12 * MS if rank == 3 and comm == 0 else 0)
        for at, rank, comm in zip(
            hidden["enqueued_ns"], hidden["rank"], hidden["comm"], strict=True
        )
    ]
    assert late(job, hidden)[0] == ()
