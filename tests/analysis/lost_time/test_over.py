"""A loss that is over says when it ended; one that comes and goes is not over."""

from __future__ import annotations

import numpy as np
import pytest

from oncall.analysis.lost_time.judgement import Entry, Loss, judged
from oncall.analysis.lost_time.limits import Limits
from oncall.analysis.lost_time.lost_time import _cover
from oncall.core.units import NS_PER_S

LIMITS = Limits()


def entry(late: list[int], iterations: int, slightly: tuple[int, ...] = ()) -> Entry:
    """Rank 3 costs these iterations, of a second each, a third, and others `slightly` a tenth."""
    share = np.zeros(iterations)
    share[late] = 1 / 3
    share[list(slightly)] = 1 / 10
    begin_ns = np.arange(iterations) * NS_PER_S
    length_ns = np.full(iterations, float(NS_PER_S))
    found = judged(Loss("own", (3,), share, length_ns, begin_ns, "waits"), LIMITS, LIMITS.few)
    assert isinstance(found, Entry)
    return found


@pytest.mark.parametrize(
    ("late", "iterations", "until_s"),
    [
        (list(range(10, 20)), 40, 20),  # mended
        (list(range(10, 20)), 20, None),  # goes on
        (list(range(10, 20)), 20 + LIMITS.event - 1, None),  # too early to say
        (list(range(10, 20)), 20 + LIMITS.event, 20),
        (list(range(0, 40, 10)), 40, None),  # every tenth: the next is due
        (list(range(0, 40, 10)), 60, 31),  # and did not come, nor the one after it
    ],
)
def test_when_it_was_over(late: list[int], iterations: int, until_s: int | None) -> None:
    expected = None if until_s is None else until_s * NS_PER_S
    assert entry(late, iterations).until_ns == expected


def test_what_it_costs_by_chance_before_and_after_moves_neither_begin_nor_end() -> None:
    found = entry(list(range(10, 20)), 40, slightly=(2, 37))
    assert (found.begin_ns, found.until_ns) == (10 * NS_PER_S, 20 * NS_PER_S)


def test_iterations_cover_the_time_that_nothing_lies_between() -> None:
    begin_ns = np.array([0, 10, 20, 70])
    assert _cover(begin_ns, np.full(4, 10.0)) == pytest.approx(0.5)
    assert _cover(begin_ns[:3], np.full(3, 10.0)) == pytest.approx(1.0)
    assert _cover(np.array([5]), np.zeros(1)) == 1.0
