"""Iterations of a mesh: no group has all ranks, and a slow rank slows all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from tests.sql import found
from tests.together import Job

from oncall.analysis.lost_time.iterations import iterations_shared
from oncall.analysis.lost_time.limits import Limits
from oncall.analysis.lost_time.programs import Programs, read_programs
from oncall.evidence import Incident

from .jobs import MS, UNIX_NS

RANKS, STEPS, SLOW = 4, 24, 1
# Two layers in the tensor pairs, then gradients in the pairs across: hosts wait in each call.
CALLS = [((0, 1), (2, 3), 96), ((0, 1), (2, 3), 96), ((0, 2), (1, 3), 4096), ((0, 2), (1, 3), 8)]


def mesh(slow_from: int, apart_ms: float = 0.0) -> dict[str, Any]:
    """Columns of `ops` of calls alone. `apart_ms`: by which the second pair across begins later."""
    rows: list[dict[str, Any]] = []
    seqs: dict[tuple[int, ...], int] = {}
    free = [apart_ms * (rank % 2) for rank in range(RANKS)]
    for step in range(STEPS):
        for one, other, count in CALLS:
            for group in (one, other):
                seqs[group] = seqs.get(group, 0) + 1
                came = {}
                for rank in group:
                    slow = rank == SLOW and step >= slow_from
                    came[rank] = free[rank] + (15 if slow else 5) + (step * 7 + rank * 3) % 5 / 10
                for rank in group:
                    free[rank] = max(came.values()) + 1
                    rows.append(
                        {"comm": 10 * group[0] + group[1], "seq": seqs[group], "rank": rank}
                        | {"count": count, "enqueued_ns": UNIX_NS + int(came[rank] * MS)}
                    )
    same = {"job": "j", "kind": "coll", "op": "AllReduce", "done": True}
    return same | {name: [row[name] for row in rows] for name in rows[0]}


def entries(job: Job, columns: dict[str, Any]) -> list[tuple[str, int]]:
    job.append("ops", columns)
    return job.found("lost_time", "cause, rank", "rank IS NOT NULL")


def test_a_slow_rank_of_a_mesh_is_named_by_ranks_of_all_its_groups(job: Job) -> None:
    assert entries(job, mesh(slow_from=STEPS // 2)) == [("own", SLOW)]


def test_an_even_mesh_has_no_slow_rank(job: Job) -> None:
    assert entries(job, mesh(slow_from=STEPS)) == []


def test_iterations_of_one_group_each_refute_nobody() -> None:
    """Ranks of the other pairs are in none of them: nothing compares them."""
    columns = mesh(slow_from=STEPS)
    later = np.isin(columns["comm"], (13, 23)) * 60_000 * MS
    columns["enqueued_ns"] = (np.array(columns["enqueued_ns"]) + later).tolist()
    for apart, whole in ((columns, False), (mesh(slow_from=STEPS), True)):
        with Incident.empty() as incident:
            incident.append("ops", apart)
            assert found(incident, "replayed_jobs", "whole") == [(whole,)]


def shared(columns: dict[str, Any], across: bool) -> tuple[int, int]:
    """How many iterations the last call of each step ends, and how many ranks each has."""
    with Incident.empty() as incident:
        incident.append("ops", columns)
        incident.require(["operations", "members"])
        programs = read_programs(incident.con, "j", Limits())
    assert isinstance(programs, Programs)
    goes_on = np.append(np.diff(programs.rank) == 0, False)
    ends = np.flatnonzero((programs.count == 8) & goes_on)
    ends = ends if across else ends[np.isin(programs.rank[ends], (0, 2))]
    same = programs.rank[ends[:-1]] == programs.rank[ends[1:]]
    number, members = iterations_shared(programs, ends[:-1][same], ends[1:][same], Limits())
    assert len(members) == number.max() + 1
    return len(members), int(members.max())


def test_groups_that_share_out_the_ranks_have_their_iterations_in_common() -> None:
    assert shared(mesh(STEPS), across=True) == (STEPS - 2, RANKS)


def test_groups_that_call_at_other_times_or_leave_ranks_out_have_their_own() -> None:
    assert shared(mesh(STEPS), across=False) == (STEPS - 2, 2)
    clocks_apart = mesh(STEPS)
    later = np.isin(clocks_apart["comm"], (13,)) * 60_000 * MS
    clocks_apart["enqueued_ns"] = (np.array(clocks_apart["enqueued_ns"]) + later).tolist()
    assert shared(clocks_apart, across=True) == (2 * (STEPS - 2), 2)
    numbers_apart = mesh(STEPS)  # of replicas of a service each has its own
    ahead = np.isin(numbers_apart["comm"], (13,)) * 1000
    numbers_apart["seq"] = (np.array(numbers_apart["seq"]) + ahead).tolist()
    assert shared(numbers_apart, across=True) == (2 * (STEPS - 2), 2)
