"""Offsets of clocks, from differences within groups."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncall.analysis.common.offsets import offsets_of

EXACT_NS = 30_000.0
HOST = 4


def members_of(hosts: int, wide: int) -> tuple[list[int], list[int]]:
    """The ranks and groups of all memberships: six groups in each host, `wide` of all ranks."""
    groups = [range(at, at + HOST) for at in range(0, hosts * HOST, HOST) for _ in range(6)]
    groups += [range(hosts * HOST)] * wide
    pairs = [(rank, number) for number, ranks in enumerate(groups) for rank in ranks]
    rank, group = zip(*pairs, strict=True)
    return list(rank), list(group)


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 6), st.integers(1, 3), st.integers(0, 99))
def test_one_group_across_hosts_tells_their_clocks_apart(hosts: int, wide: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    true_ns = np.repeat(draw.integers(-(10**9), 10**9, hosts), HOST).astype(float)
    rank, group = (np.array(each) for each in members_of(hosts, wide))
    of_group_ns = draw.integers(-(10**8), 10**8, int(group.max()) + 1)
    found_ns = offsets_of(
        rank, group, true_ns[rank] + of_group_ns[group], len(true_ns), exact_ns=EXACT_NS
    )
    assert found_ns == pytest.approx(true_ns - np.median(true_ns), abs=1e6)


def test_who_is_late_in_one_group_is_no_further_ahead() -> None:
    rank, group = (np.array(each) for each in members_of(hosts=3, wide=2))
    late_ns = np.where((rank == 5) & (group == group.max()), 7e6, 0.0)
    found_ns = offsets_of(rank, group, late_ns, 12, exact_ns=EXACT_NS)
    assert np.abs(found_ns).max() < 1e6


def test_nobody_compared_is_nobody_ahead() -> None:
    none = np.zeros(0, dtype=np.int64)
    assert offsets_of(none, none, np.zeros(0), 3, exact_ns=EXACT_NS).tolist() == [0.0, 0.0, 0.0]
