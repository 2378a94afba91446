"""Durations of devices beside the calls of hosts that are one operation ahead of them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.sql import found

from oncall.evidence import Incident

from .jobs import MS, UNIX_NS

EVERYONE = tuple(range(8))
GROUPS = ((0, 1), (2, 3), (4, 5), (6, 7))  # that reduce within a layer
REPLICAS = ((0, 2, 4, 6), (1, 3, 5, 7))  # that reduce the same gradients
LAYERS, BUCKETS, ITERATIONS = 60, 3, 9
CULPRIT, SLOW = 1, (2, 4, 5, 6, 7)


def job() -> dict[str, Any]:
    """Columns of `ops`. In slow iterations the culprit's work takes three times as long, so that
    the other groups wait for it in one place of many: the first of its buckets of gradients."""
    rows: list[dict[str, Any]] = []
    device, called = [0.0] * 8, [0.0] * 8
    number: dict[int, int] = {}

    def meet(iteration: int, members: tuple[int, ...], comm: int, op: str, work_ms: float) -> None:
        begun = {}
        for rank in members:
            jitter = 0.1 * ((7 * rank + len(rows)) % 5)
            factor = 3 if rank == CULPRIT and iteration in SLOW else 1
            begun[rank] = device[rank] + (work_ms + jitter) * factor
        over = max(begun.values()) + 1
        seq = number[comm] = number.get(comm, -1) + 1
        for rank in members:
            rows.append(
                {"job": "j", "comm": comm, "seq": seq, "rank": rank, "kind": "coll", "op": op}
                | {
                    "count": 4096 if op == "AllReduce" else 65536,
                    "done": True,
                    "duration_ns": int((over - begun[rank]) * MS),
                }
                | {"enqueued_ns": UNIX_NS + int(called[rank] * MS)}
            )
            # The next call is made when the device begins with this operation.
            called[rank] = over if comm == 9 else max(called[rank] + 0.01, begun[rank])
            device[rank] = over

    for iteration in range(ITERATIONS):
        for _ in range(LAYERS):
            for group, members in enumerate(GROUPS):
                meet(iteration, members, group, "AllReduce", 10)
        for _ in range(BUCKETS):
            for replica, members in enumerate(REPLICAS):
                meet(iteration, members, 5 + replica, "ReduceScatter", 0)
        meet(iteration, EVERYONE, 9, "AllReduce", 0)
    return {name: [row[name] for row in rows] for name in rows[0]}


def test_one_place_that_lacks_much_time_shows_that_hosts_are_ahead() -> None:
    with Incident.empty() as incident:
        incident.append("ops", job())
        ((rank, iterations, share),) = found(
            incident, "lost_time", "rank, iterations, share", "cause = 'own'"
        )
    assert (rank, iterations) == (CULPRIT, len(SLOW))
    assert share == pytest.approx(2 / 3, abs=0.05)
