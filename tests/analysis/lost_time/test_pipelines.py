"""Iterations of a pipeline by durations: stages call different things, and wait by their place."""

from __future__ import annotations

import random
from typing import Any

import pytest

from oncall.evidence import Incident

from .jobs import MS, UNIX_NS

REPLICAS, STEPS, MICRO_BATCHES = 4, 14, 3
RANKS = 2 * REPLICAS  # stage 0, then stage 1
STAGES = [tuple(range(REPLICAS)), tuple(range(REPLICAS, RANKS))]
COMPUTES_MS = 10.0


def pipeline(slow: int | None, *, heavier: float = 1.0, loss: bool = True) -> dict[str, Any]:
    """Columns of `ops`: micro-batches one after the other, gradients reduced within each stage,
    the norm between the stages of a replica. Hosts wait in every call. `heavier`: the work of the
    last stage, by design; it averages the `loss` as well, so that no two calls of its group are as
    far apart as those of the first stage."""
    rows: list[dict[str, Any]] = []
    free = [0.0] * RANKS
    seqs: dict[int, int] = {}
    chance = random.Random(5)

    def compute(rank: int) -> None:
        work = COMPUTES_MS * (heavier if rank >= REPLICAS else 1.0) * (1 + 0.02 * chance.random())
        free[rank] += work * (1.5 if rank == slow else 1.0)

    def call(comm: int, ranks: tuple[int, ...], op: str, count: int) -> None:
        seqs[comm] = seq = seqs.get(comm, -1) + 1
        over = max(free[rank] for rank in ranks) + 1
        for rank in ranks:
            end = "Send" if rank == ranks[0] else "Recv"
            p2p = {"kind": "p2p", "op": end, "peer": ranks[0] + ranks[1] - rank}
            rows.append(
                {"comm": comm, "seq": seq, "rank": rank, "count": count}
                | (p2p if op == "p2p" else {"kind": "coll", "op": op, "peer": None})
                | {"enqueued_ns": UNIX_NS + int(free[rank] * MS)}
                | {"duration_ns": int((over - free[rank]) * MS)}
            )
            free[rank] = over

    for _ in range(STEPS):
        for _ in range(MICRO_BATCHES):
            for first in STAGES[0]:
                last = first + REPLICAS
                compute(first)
                call(100 + first, (first, last), "p2p", 512)
                compute(last)
                call(100 + first, (last, first), "p2p", 512)
                compute(first)
        for stage, ranks in enumerate(STAGES):
            for _ in range(1 + stage * loss):
                call(10 + stage, ranks, "AllReduce", 4096)
        for first in STAGES[0]:
            call(20 + first, (first, first + REPLICAS), "AllReduce", 1)
    same = {"job": "j", "done": True}
    return same | {name: [row[name] for row in rows] for name in rows[0]}


def named(columns: dict[str, Any]) -> list[tuple[str, int]]:
    with Incident.empty() as incident:
        incident.append("ops", columns)
        incident.require(["lost_time"])
        return incident.con.execute(
            "SELECT cause, rank FROM lost_time WHERE rank IS NOT NULL ORDER BY ALL"
        ).fetchall()


@pytest.mark.parametrize("slow", [2, 5])
@pytest.mark.parametrize("loss", [True, False])
def test_the_slow_rank_of_a_stage_is_named(slow: int, loss: bool) -> None:
    assert named(pipeline(slow, loss=loss)) == [("own", slow)]


@pytest.mark.parametrize("heavier", [1.0, 2.0])
def test_a_stage_with_more_layers_is_nobodys_fault(heavier: float) -> None:
    assert named(pipeline(None, heavier=heavier)) == []
