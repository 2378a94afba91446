"""Clocks of ranks that nobody measured: planted offsets are found, small ones are left alone."""

from __future__ import annotations

import numpy as np
import pytest

from oncall.analysis.tasks.rank_calls import REPLICAS, TASK, RankCalls
from oncall.analysis.tasks.task_lateness import clock_corrections, corrections_of

MS = 1_000_000


def rank_calls(rank: int, called_ns: list[int], use: list[int]) -> RankCalls:
    """Calls of one rank; those of one use are on one communicator and numbered there."""
    n, uses = len(use), np.array(use)
    seq = np.zeros(n, dtype=np.int64)
    for each in np.unique(uses):
        seq[uses == each] = np.arange((uses == each).sum())
    zeros, no = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.bool_)
    at = np.array(called_ns, dtype=np.int64)
    return RankCalls(
        job="j", rank=rank, use=uses, comm=(uses == TASK).astype(np.int64), word=zeros,
        size_bytes=zeros, reduces=no, sums=no, seq=seq, group=zeros - 1, peer=zeros - 1,
        peer_recorded=no, called_ns=at, entered_ns=at, ended_ns=zeros - 1, lost=no,
        partners=zeros[:0], comms=(1, 2),
    )  # fmt: skip


def ranks(ahead_ns: list[int], late_ns: int = 0) -> list[RankCalls]:
    """Ranks that meet ten times and then go on at once; the last one comes `late_ns` later."""
    found = []
    for rank, ahead in enumerate(ahead_ns):
        late = late_ns * (rank == len(ahead_ns) - 1)
        met = [1000 * MS + 100 * MS * i for i in range(10)]
        called = [t + ahead for at in met for t in (at + late, at + late_ns + MS)]
        found.append(rank_calls(rank, called, [REPLICAS, TASK] * 10))
    return found


@pytest.mark.parametrize("late_ns", [0, 30 * MS])
def test_planted_offsets_are_found_whoever_is_late(late_ns: int) -> None:
    known = clock_corrections(ranks([0, 0, 50 * MS, -20 * MS], late_ns))
    moved = corrections_of(np.arange(4), known)
    assert (moved - moved[0]).tolist() == [0, 0, -50 * MS, 20 * MS]


def test_within_the_error_nothing_is_corrected() -> None:
    assert clock_corrections(ranks([0, 2 * MS, 0])) == []
    assert corrections_of(np.arange(3), []).tolist() == [0, 0, 0]


def test_ranks_that_never_meet_are_not_corrected() -> None:
    known = clock_corrections(ranks([0, 50 * MS]))
    assert corrections_of(np.array([1, 7]), known).tolist() == [0, 0]
