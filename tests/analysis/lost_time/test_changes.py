"""What changed when iterations became longer, where lateness alone does not show what it costs."""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import Any

import pytest
from tests.together import Job

from oncall.analysis.lost_time.limits import Limits

from .jobs import MS, UNIX_NS
from .test_lateness import ITERATIONS, TWO_STREAMS, even, played

SINCE = 6
LIMITS = Limits()


def causes(job: Job, columns: dict[str, Any]) -> list[tuple[str, tuple[int, ...]]]:
    """Each cause with its ranks."""
    job.append("ops", columns)
    rows = job.found("lost_time", "cause, rank", "entry > 0")
    return [
        (cause, tuple(rank for _, rank in group))
        for cause, group in groupby(rows, key=itemgetter(0))
    ]


def slow_host(iteration: int, rank: int) -> float:
    return 10 * (1.5 if rank >= 4 and iteration >= SINCE else 1)


@pytest.mark.parametrize("late", [(), (4, 5, 6, 7), (0, 3, 5)])
def test_who_alone_calls_later_since_then_is_the_slow_host(job: Job, late: tuple[int, ...]) -> None:
    # Devices are slower by 30 ms an iteration, hosts that run ahead of them by 4.
    def pause(iteration: int, rank: int) -> float:
        return 4 if rank in late and iteration >= SINCE else 0

    found = causes(job, played(slow_host, overlaps=True, pause=pause, timed=False))
    if late == (4, 5, 6, 7):
        assert found == [("own", late)]
    else:  # nobody, or ranks that share no host
        assert found == [("unexplained", (None,))]


def test_transfers_that_take_longer_since_then_are_slow_communication(job: Job) -> None:
    group = TWO_STREAMS[-1]

    def transfer(iteration: int, comm: int) -> float:
        return 9 if comm == group[0] and iteration >= SINCE else 1

    columns = played(even, TWO_STREAMS, overlaps=False, transfer=transfer)
    assert causes(job, columns) == [("transfer", group[1])]


def test_transfers_that_were_always_so_long_changed_nothing(job: Job) -> None:
    group = TWO_STREAMS[-1]

    def transfer(_iteration: int, comm: int) -> float:
        return 9 if comm == group[0] else 1

    columns = played(even, TWO_STREAMS, overlaps=False, transfer=transfer)
    assert all(cause != "unexplained" for cause, _ in causes(job, columns))


def test_one_event_does_not_hide_a_lasting_change(job: Job) -> None:
    def transfer(iteration: int, _comm: int) -> float:
        return 40 if iteration == 0 else 12 if iteration >= ITERATIONS - 4 else 1

    columns = played(even, overlaps=False, transfer=transfer)
    assert [cause for cause, _ in causes(job, columns)] == ["transfer"]


def in_buckets(slow: int | None) -> dict[str, Any]:
    """Data-parallel ranks as devices record them: gradients are reduced beside the computation, in
    buckets, then all wait for one another. The work of one rank takes 30 % longer from SINCE on."""
    ranks, buckets = range(8), 5
    now, over, rows = [0.0] * len(ranks), 0.0, []
    for iteration in range(ITERATIONS):
        for bucket in range(buckets + 1):
            for rank in ranks:
                late = rank == slow and iteration >= SINCE
                now[rank] += (0 if bucket == buckets else 20) * (1.3 if late else 1)
            began = [max(at, over) for at in now]
            over = max(began) + 4
            rows += [
                {"job": "j", "comm": 1, "seq": iteration * (buckets + 1) + bucket, "rank": rank}
                | {"kind": "coll", "op": "AllReduce", "count": 1 if bucket == buckets else 4096}
                | {"started_ns": UNIX_NS + int(began[rank] * MS), "done": True}
                | {"ended_ns": UNIX_NS + int(over * MS)}
                for rank in ranks
            ]
        now = [over] * len(ranks)
    return {name: [row[name] for row in rows] for name in rows[0]}


@pytest.mark.parametrize("slow", [3, None])
def test_devices_times_show_who_came_later_since_then(job: Job, slow: int | None) -> None:
    found = causes(job, in_buckets(slow))
    assert found == ([] if slow is None else [("own", (slow,))])
