"""The pace of communicators against one that is worked out call by call."""

from __future__ import annotations

from itertools import pairwise
from statistics import median

import numpy as np
import pytest

from oncall.analysis.traffic.pace import Moments, pace_of

LONG = 5.0


def by_hand(
    calls: list[tuple[int, int, int, int]], sent: list[tuple[int, int]], comm: int
) -> tuple[int, float, float, float]:
    """What `pace_of` says of one communicator, of calls (comm, rank, at, times)."""
    most, long, apart, share = 0, [], [], []
    for rank in sorted({each[1] for each in calls if each[0] == comm}):
        mine = sorted(each[2:] for each in calls if each[:2] == (comm, rank))
        most = max(most, sum(times for _, times in mine))
        at = [when for when, _ in mine if when >= 0]
        pauses = [b - a for a, b in pairwise(at)]
        slow = [one for one in pauses if one > LONG * median(pauses)]
        long.append(sum(slow) / sum(pauses) if sum(pauses) else 0.0)
        apart.append(sum(pauses) / len(pauses) if pauses else 0.0)
        moments = sorted(when for who, when in sent if who == rank)
        if len(moments) > 1:
            pairs = list(pairwise(moments))
            inside = {a for a, b in pairs if any(a <= when < b for when in at)}
            share.append(len(inside) / len(pairs))
    return most, median(long), median(apart), median(share) if share else float("nan")


@pytest.mark.parametrize("seed", range(20))
def test_the_pace_is_that_of_each_call(seed: int) -> None:
    rng = np.random.default_rng(seed)
    scale = int(rng.choice([30, 10**12]))  # many at the same time, or spread over an hour
    calls = [
        (int(rng.integers(3)), int(rng.integers(4)), int(rng.integers(scale)), 1 + seed % 2)
        for _ in range(60)
    ]
    calls += [(2, 5, -1, 1), (2, 5, 7, 1)]  # one whose time is not known
    sent = [(int(rng.integers(3)), int(rng.integers(scale))) for _ in range(40)]
    comm, rank, at_ns, times = np.array(calls).T
    sender, sent_ns = np.array(sent).T
    found = pace_of(comm, Moments(rank, at_ns), times, Moments(sender, sent_ns), 4, LONG)
    for each in range(3):
        expected = by_hand(calls, sent, each)
        values = (found.collectives, found.long_pauses, found.apart_ns, found.interleaved)
        assert [float(one[each]) for one in values] == pytest.approx(expected, nan_ok=True)
    assert found.collectives[3] == 0
    assert np.isnan(found.long_pauses[3])


def test_without_transfers_nothing_is_interleaved() -> None:
    none = np.zeros(0, dtype=np.int64)
    one = np.array([0, 0])
    found = pace_of(one, Moments(one, np.array([1, 2])), one + 1, Moments(none, none), 1, LONG)
    assert found.collectives.tolist() == [2]
    assert np.isnan(found.interleaved[0])


def test_without_collectives_there_is_no_pace() -> None:
    none = np.zeros(0, dtype=np.int64)
    found = pace_of(none, Moments(none, none), none, Moments(none + 1, none), 2, LONG)
    assert found.collectives.tolist() == [0, 0]
