"""Iterations of a pipeline by durations: stages call different things, and wait by their place."""

from __future__ import annotations

import random
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.together import Job

from oncall.analysis.lost_time.lateness import _against_peers

from .jobs import MS, UNIX_NS

REPLICAS, STAGES, STEPS, MICRO_BATCHES = 4, 4, 14, 3
RANKS = REPLICAS * STAGES
COMPUTES_MS = 10.0


def pipeline(
    slow: int | None, *, heavy: int | None = None, loss: bool = True, absent: int | None = None
) -> dict[str, Any]:
    """Columns of `ops`: micro-batches one after the other, gradients reduced within each stage,
    the norm along each replica. Hosts wait in every call. `heavy`: a stage with twice the work, by
    design; the last one averages the `loss` as well, so that no calls of its group are as far apart
    as those of other stages; `absent` left no dump."""
    rows: list[dict[str, Any]] = []
    free = [0.0] * RANKS
    seqs: dict[int, int] = {}
    chance = random.Random(5)

    def compute(rank: int) -> None:
        work = COMPUTES_MS * (2 if rank // REPLICAS == heavy else 1) * (1 + 0.02 * chance.random())
        free[rank] += work * (1.5 if rank == slow else 1)

    def call(comm: int, ranks: list[int], op: str, count: int) -> None:
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

    replicas = [list(range(first, RANKS, REPLICAS)) for first in range(REPLICAS)]
    for _ in range(STEPS):
        for _ in range(MICRO_BATCHES):
            for replica in replicas:
                for line in (replica, replica[::-1]):
                    for rank, other in pairwise(line):
                        compute(rank)
                        call(100 + rank, [rank, other], "p2p", 512)
                    compute(line[-1])
        for stage in range(STAGES):
            members = list(range(stage * REPLICAS, (stage + 1) * REPLICAS))
            for _ in range(1 + (loss and stage == STAGES - 1)):
                call(10 + stage, members, "AllReduce", 4096)
        for first, replica in enumerate(replicas):
            call(20 + first, replica, "AllReduce", 1)
    rows = [row for row in rows if row["rank"] != absent]
    same = {"job": "j", "done": True}
    return same | {name: [row[name] for row in rows] for name in rows[0]}


def named(job: Job, columns: dict[str, Any]) -> list[tuple[str, int]]:
    job.append("ops", columns)
    return job.found("lost_time", "cause, rank", "rank IS NOT NULL")


@pytest.mark.parametrize("slow", [2, 5, 10])
@pytest.mark.parametrize("loss", [True, False])
def test_the_slow_rank_of_a_stage_is_named(job: Job, slow: int, loss: bool) -> None:
    assert named(job, pipeline(slow, loss=loss)) == [("own", slow)]


@pytest.mark.parametrize("heavy", [None, *range(STAGES)])
def test_a_stage_with_more_layers_is_nobodys_fault(job: Job, heavy: int | None) -> None:
    assert named(job, pipeline(None, heavy=heavy)) == []


@pytest.mark.parametrize("absent", [1, 4, 10])
def test_who_waits_for_a_rank_without_a_dump_is_not_late(job: Job, absent: int) -> None:
    """What its partners waited for it is not recorded on its side."""
    assert named(job, pipeline(absent, absent=absent)) == []


def test_who_sends_to_a_rank_without_whole_iterations_is_compared_with_nobody() -> None:
    """Ranks 0 and 1 exchange, and no iteration of rank 1 was recorded whole; so do 2 and 3."""
    nodes = np.arange(4)
    parts = SimpleNamespace(node=nodes, peer=nodes ^ 1)
    programs: Any = SimpleNamespace(
        ranks=nodes, rank=nodes, parts=parts, members=[], sizes=nodes[:0]
    )
    whole: Any = SimpleNamespace(program=np.array([[1, 0, 1, 1]] * 3))
    late_ns = _against_peers(programs, whole, np.zeros((3, 4)), np.zeros(4, dtype=np.int64))
    assert np.isnan(late_ns).tolist() == [[True, True, False, False]] * 3
