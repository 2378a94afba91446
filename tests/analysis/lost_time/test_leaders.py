"""Who loads data for its group: late before it broadcasts them, by design."""

from __future__ import annotations

from typing import Any

import pytest

from oncall.analysis.lost_time.books import books_of
from oncall.analysis.lost_time.graph import broadcasts_of, leaders_of
from oncall.analysis.lost_time.limits import Limits
from oncall.analysis.lost_time.programs import Programs, read_programs
from oncall.evidence import Incident

from .jobs import GROUPS, LAYERS, MS, UNIX_NS, Work, layers, no_offset
from .test_lost_time import Causes, even, found, quick

ITERATIONS, LOADS_MS = 16, 25


def loading(slow: int | None) -> Work:
    """The first rank of each group loads samples before the first call; `slow` ones take longer."""

    def work(iteration: int, rank: int, layer: int) -> int:
        if layer:
            return even(iteration, rank, layer)
        leads = any(rank == members[0] for members in GROUPS)
        return LOADS_MS * (leads + 2 * (rank == slow)) + (iteration + rank) % 2

    return work


def job(slow: int | None, op: str = "Broadcast") -> dict[str, Any]:
    """A job whose groups begin each iteration with `op`."""
    columns = layers(loading(slow), quick, ITERATIONS, timed=True, clock=no_offset)
    calls = zip(columns["op"], columns["comm"], columns["seq"], strict=True)
    columns["op"] = [op if comm != 9 and seq % LAYERS == 0 else one for one, comm, seq in calls]
    return columns


def causes(columns: dict[str, Any]) -> Causes:
    return found(columns)[0]


def programs(columns: dict[str, Any]) -> Programs:
    with Incident.empty() as incident:
        incident.append("ops", columns)
        incident.require(["operations", "members"])
        read = read_programs(incident.con, "j", Limits())
        assert read is not None
        return read


def test_loading_for_the_group_is_no_fault() -> None:
    assert causes(job(None)) == {}


def test_without_a_broadcast_those_ranks_are_slow() -> None:
    ((_, ranks),) = causes(job(None, "AllReduce"))
    assert ranks == (0, 2)


@pytest.mark.parametrize("slow", [0, 2])
def test_a_slow_loader_is_found_beside_that_of_another_group(slow: int) -> None:
    ((_, ranks),) = causes(job(slow))
    assert ranks == (slow,)


@pytest.mark.parametrize("slow", [0, 2])
def test_the_leader_of_another_stage_shows_nothing(slow: int) -> None:
    """It loads at another time of its iteration: stages make different calls."""
    columns = job(slow)
    calls = zip(columns["op"], columns["rank"], columns["seq"], strict=True)
    columns["op"] = [
        "AllGather" if rank >= 2 and op == "AllReduce" and seq % LAYERS == 1 else op
        for op, rank, seq in calls
    ]
    assert causes(columns) == {}


def test_leaders_are_the_first_of_their_groups() -> None:
    read = programs(job(None))
    assert leaders_of(read).tolist() == [True, False, True, False]
    assert not leaders_of(programs(job(None, "AllReduce"))).any()
    books = books_of(read, Limits())
    assert books is not None
    (nodes,) = broadcasts_of(read, books.classes[0].order.graph)
    assert nodes.shape == (2, 1)


def test_hosts_that_do_not_wait_are_not_replayed() -> None:
    """Rank 0's host calls 3 ms after the others but for the first call, and none of them waits
    before the iteration ends: had they waited in each call, as a replay has it, they would have
    worked backwards."""
    rows = []
    for iteration in range(ITERATIONS):
        for place in range(LAYERS + 1):
            for rank in range(4):
                called_ms = 30 * iteration + 0.2 * place + 3 * (rank == 0 < place < LAYERS + 1)
                ends = place == LAYERS
                rows.append(
                    {"job": "j", "comm": 9 if ends else 1 + rank // 2, "rank": rank}
                    | {"seq": iteration if ends else iteration * LAYERS + place}
                    | {"kind": "coll", "op": "AllReduce", "count": 1 if ends else 4096}
                    | {"done": True, "enqueued_ns": UNIX_NS + int(called_ms * MS)}
                )
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    books = books_of(programs(columns), Limits())
    assert books is not None and books.backwards > Limits().hardly
    assert causes(columns) == {}
