"""Of calls alone, hosts whose clocks are off make nobody late, however groups lie across them."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.together import Job

from .jobs import MS, UNIX_NS

RANKS, HOST = 16, 4
TENSOR = [range(8), range(8, 16)]
DATA = [(rank, rank + 8) for rank in range(8)]


def in_step(clocks_ms: tuple[float, ...], slow: int | None = None) -> dict[str, Any]:
    """Columns of `ops` of 12 steps, in each of which tensor groups reduce 12 times, pairs of ranks
    that hold the same part 4 times, and all once; hosts wait in every call."""
    draw = random.Random(7)
    rows: list[dict[str, Any]] = []
    now = [0.0] * RANKS
    groups = [*TENSOR, *DATA, range(RANKS)]
    calls = [(range(2), 4096)] * 12 + [(range(2, 10), 512)] * 4 + [(range(10, 11), 1)]
    for step in range(12):
        for number, (comms, count) in enumerate(calls):
            for comm in comms:
                for rank in groups[comm]:
                    work = draw.uniform(2.0, 2.1) + number % 3
                    now[rank] += work * (1.5 if rank == slow and count == 4096 else 1.0)
                    at = UNIX_NS + int((now[rank] + clocks_ms[rank // HOST]) * MS)
                    seq = step * len(calls) + number
                    rows.append(
                        {"job": "j", "comm": comm, "seq": seq, "rank": rank, "kind": "coll"}
                        | {"op": "AllReduce", "count": count, "done": True, "enqueued_ns": at}
                    )
                over = max(now[rank] for rank in groups[comm]) + 0.5
                for rank in groups[comm]:
                    now[rank] = over
    return {name: [row[name] for row in rows] for name in rows[0]}


@pytest.mark.parametrize("clocks_ms", [(0, 0, 0, 0), (0.0, 7.1, 3.2, 9.7), (0.0, 0.8, 0.0, 0.6)])
def test_clocks_of_hosts_make_nobody_late(job: Job, clocks_ms: tuple[float, ...]) -> None:
    job.append("ops", in_step(clocks_ms))
    assert job.found("lost_time", "rank", "rank IS NOT NULL") == []


def test_a_slow_rank_is_late_whatever_the_clocks_say(job: Job) -> None:
    job.append("ops", in_step((0.0, 7.1, 3.2, 9.7), slow=9))
    assert set(job.found("lost_time", "cause, rank", "rank IS NOT NULL")) == {("own", 9)}
