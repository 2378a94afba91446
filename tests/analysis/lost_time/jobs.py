"""A small job played by hand: two tensor groups, then a step of all; everything takes whole ms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from oncall.analysis.lost_time.arrays import Times
from oncall.analysis.lost_time.iterations import Iterations
from oncall.analysis.lost_time.lateness import Lateness

UNIX_NS = 1_760_000_000_000_000_000
MS = 1_000_000
GROUPS = ((0, 1), (2, 3))
LAYERS = 6
Work = Callable[[int, int, int], int]  # (iteration, rank, layer) -> ms
Clock = Callable[[int], int]  # rank -> ms by which its clock is ahead


def layers(
    work: Work, transfer: Work, iterations: int, *, timed: bool, clock: Clock
) -> dict[str, Any]:
    """Columns of `ops`: in each layer a rank works, then its tensor group reduces; at the end of an
    iteration all ranks do. Work and transfers are as given. `timed`: as devices do; else as hosts
    call, one operation ahead of them, but for the end of an iteration, where they wait."""
    rows: list[dict[str, Any]] = []
    now, ahead = [0] * 4, [0] * 4

    def reduce(comm: int, seq: int, members: tuple[int, ...], takes: int, count: int) -> None:
        over = max(now[rank] for rank in members) + takes
        for rank in members:
            began, ended, called = (
                UNIX_NS + (at + clock(rank)) * MS for at in (now[rank], over, ahead[rank])
            )
            times = {"started_ns": began, "ended_ns": ended} if timed else {"enqueued_ns": called}
            rows.append(
                {"job": "j", "comm": comm, "seq": seq, "rank": rank, "kind": "coll"}
                | {"op": "AllReduce", "count": count, "done": True, **times}
            )
            ahead[rank] = over if comm == 9 else now[rank]
            now[rank] = over

    for iteration in range(iterations):
        for layer in range(LAYERS):
            for number, members in enumerate(GROUPS):
                for rank in members:
                    now[rank] += work(iteration, rank, layer)
                takes = transfer(iteration, number, layer)
                reduce(number + 1, iteration * LAYERS + layer, members, takes, 4096)
        reduce(9, iteration, (0, 1, 2, 3), 1, 1)
    return {name: [row[name] for row in rows] for name in rows[0]}


def no_offset(rank: int) -> int:
    return 0 * rank


def of_like_iterations(late_ns: Times, length_ms: float) -> Lateness:
    """Lateness (s, r) in iterations of one length, in which all ranks make the same calls."""
    iterations, ranks = late_ns.shape
    none = np.zeros(0, dtype=np.int64)
    each = Iterations(
        number=none,
        begin_ns=(np.arange(iterations) * length_ms * MS).astype(np.int64),
        length_ns=np.full(iterations, length_ms * MS),
        program=np.ones((iterations, ranks), dtype=np.uint64),
        span=np.ones(iterations, dtype=np.int64),
        cut=none > 0,
        ahead=0.0,
        stretches=False,
        extra=none > 0,
    )
    return Lateness(late_ns, np.arange(ranks), each, timed=True)
