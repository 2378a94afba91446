"""A host all of whose ranks are slow, behind samples that decide who is last."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from oncall.analysis.lost_time.judgement import Declined, Entry
from oncall.analysis.lost_time.lateness import late_hosts
from oncall.analysis.lost_time.limits import Limits

from .jobs import MS, of_like_iterations

LIMITS = Limits()


@pytest.mark.parametrize("iterations", [4, 7])
def test_one_of_two_hosts_needs_few_iterations_if_all_its_ranks_are_last(iterations: int) -> None:
    draw = np.random.default_rng(1)
    late_ns = draw.uniform(0, 4 * MS, (iterations, 8))
    late_ns[:, 4:] += 10 * MS
    entry = late_hosts(of_like_iterations(late_ns, 100), LIMITS)
    assert isinstance(entry, Entry) and entry.ranks == (4, 5, 6, 7)
    assert entry.share == pytest.approx(0.1, abs=0.02)


def test_samples_of_different_length_make_no_host_last() -> None:
    draw = np.random.default_rng(2)
    found = [
        late_hosts(of_like_iterations(draw.exponential(10 * MS, (7, 8)), 100), LIMITS)
        for _ in range(300)
    ]
    assert sum(isinstance(entry, Entry) for entry in found) <= 3


def test_ranks_of_two_hosts_are_no_host() -> None:
    late_ns = np.random.default_rng(3).uniform(0, 4 * MS, (7, 8))
    late_ns[:, [1, 2, 5, 6]] += 10 * MS
    assert isinstance(late_hosts(of_like_iterations(late_ns, 100), LIMITS), Declined)


@pytest.mark.parametrize("longer", [0, 15])
def test_what_a_host_costs_shows_in_the_lengths_of_iterations(longer: int) -> None:
    """Ranks that wait for one another are all as late as one of them, which costs nothing."""
    late_ns = np.random.default_rng(4).uniform(0, 4 * MS, (20, 8))
    late_ns[8:, 4:] += 15 * MS
    lateness = of_like_iterations(late_ns, 100)
    nth = np.arange(20)
    length_ns = lateness.iterations.length_ns + np.where(nth >= 8, longer, 0) * MS
    each = replace(lateness.iterations, length_ns=length_ns, span=nth)
    lateness = replace(lateness, iterations=each)
    assert isinstance(late_hosts(lateness, LIMITS), Entry) == bool(longer)
