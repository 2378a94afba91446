"""How likely a rank comes late so often by chance."""

from __future__ import annotations

from dataclasses import replace
from math import comb

import numpy as np
import pytest

from oncall.analysis.lost_time.judgement import Entry, at_least, is_duty
from oncall.analysis.lost_time.lateness import by_hosts, latecomers, suspected
from oncall.analysis.lost_time.limits import Limits

from .jobs import of_like_iterations


@pytest.mark.parametrize(("number", "of", "part"), [(0, 9, 0.25), (3, 9, 0.25), (40, 200, 1 / 8)])
def test_the_binomial_tail(number: int, of: int, part: float) -> None:
    exact = sum(comb(of, k) * part**k * (1 - part) ** (of - k) for k in range(number, of + 1))
    assert at_least(number, of, part) == pytest.approx(exact, rel=1e-9)


def test_thousands_of_iterations() -> None:
    assert 0 <= at_least(275, 1_100, 1 / 64) < 1e-100
    assert at_least(0, 20_000, 1 / 64) == pytest.approx(1)


def test_ranks_without_others_are_late_by_chance() -> None:
    assert at_least(5, 5, 1.0) == 1


@pytest.mark.parametrize(
    ("ranks", "share", "late", "duty"),
    [
        ([0], 0.1, [4, 9, 14], True),  # rank 0 logs every fifth iteration
        ([2], 0.1, [4, 9, 14], False),
        ([0], 0.3, [4, 9, 14], True),  # it saves, which takes long
        ([0], 0.3, [4, 5, 6, 7], False),
        ([0], 0.1, [2, 3, 5, 6], False),  # it began, and ended
        ([0], 0.1, [], False),
        ([0, 1, 2, 3], 0.5, [4], True),  # a whole replica saves
        ([0, 1, 2, 3], 0.1, [4, 5, 6, 7], False),
    ],
)
def test_rank_0_or_its_replica_may_serve_all_others(
    ranks: list[int], share: float, late: list[int], duty: bool
) -> None:
    flags = np.zeros(16, dtype=np.bool_)
    flags[late] = True
    assert is_duty(ranks, share, flags, Limits()) == duty


def test_ranks_without_a_dump_move_no_other_to_another_host() -> None:
    ranks = np.array([0, 2, 3, 4, 5])
    host, share = by_hosts(np.arange(5.0)[None], ranks, 2)
    assert host.tolist() == [0, 1, 1, 2, 2]
    assert np.nan_to_num(share, nan=-1).tolist() == [[[0, -1], [1, 2], [3, 4]]]


def test_a_rank_of_any_number_is_one_host_more() -> None:
    host, share = by_hosts(np.arange(3.0)[None], np.array([0, 1, 2_000_000_000]), 8)
    assert host.tolist() == [0, 0, 1] and share.shape == (1, 2, 8)


@pytest.mark.parametrize(
    ("rank", "late_ms", "suspect"),
    [
        (5, {3: 90, 11: 80}, True),  # 8 % of the time for one rank, in two waits beyond any noise
        (0, {3: 90, 11: 80}, False),  # who logs and saves for all
        (5, {3: 170}, False),  # once may be an interrupt; whether it cost too much, others decide
        (5, {3: 15, 5: 15, 7: 15, 9: 15, 11: 15, 13: 15}, False),  # as samples differ
        (5, {3: 35, 11: 30}, False),  # 3 %
    ],
)
def test_two_long_waits_for_one_rank_are_no_health(
    rank: int, late_ms: dict[int, int], suspect: bool
) -> None:
    iterations, ranks = 20, 8
    late_ns = np.random.default_rng(5).normal(0.0, 2e6, (iterations, ranks))
    for iteration, ms in late_ms.items():
        late_ns[iteration, rank] = ms * 1e6
    entry = suspected(of_like_iterations(late_ns, 100), Limits())
    assert isinstance(entry, Entry) is suspect
    if isinstance(entry, Entry):
        assert (entry.cause, entry.ranks, entry.segments) == ("perhaps", (rank,), 2)


@pytest.mark.parametrize(
    ("late_ms", "others_ms", "named"),
    [
        ({3: 700, 11: 800}, {}, True),  # more than a healthy host loses at once
        ({3: 90, 11: 80}, {}, False),
        ({3: 700, 11: 800}, {6: 600}, False),  # another is late as well
    ],
)
def test_few_long_waits_for_one_rank_alone_are_its_fault(
    late_ms: dict[int, int], others_ms: dict[int, int], named: bool
) -> None:
    late_ns = np.random.default_rng(5).normal(0.0, 2e6, (20, 8))
    for rank, waits in ((5, late_ms), (2, others_ms)):
        for iteration, ms in waits.items():
            late_ns[iteration, rank] = ms * 1e6
    entry = latecomers(of_like_iterations(late_ns, 1000), Limits())
    assert isinstance(entry, Entry) is named
    if isinstance(entry, Entry):
        assert (entry.cause, entry.ranks, entry.segments) == ("own", (5,), 2)


@pytest.mark.parametrize(("passed_on_ms", "passes_on"), [(8.0, True), (2.0, False), (None, False)])
def test_who_waits_for_who_sends_to_it_passes_that_on(
    passed_on_ms: float | None, passes_on: bool
) -> None:
    """Rank 5 is late by 10 ms of 100, after it may have waited so long for what it received."""
    late_ns = np.zeros((6, 8))
    late_ns[:, 5] = 10e6
    lateness = of_like_iterations(late_ns, 100.0)
    if passed_on_ms is not None:
        lateness = replace(lateness, passed_on_ns=late_ns / 10 * passed_on_ms)
    found = latecomers(lateness, Limits())
    assert isinstance(found, Entry) and found.ranks == (5,)
    assert lateness.passes_on(found.ranks, found.share, Limits()) == passes_on
