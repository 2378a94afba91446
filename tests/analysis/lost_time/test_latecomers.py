"""How likely a rank comes late so often by chance."""

from __future__ import annotations

from math import comb

import pytest

from oncall.analysis.lost_time.chance import at_least


@pytest.mark.parametrize(("number", "of", "part"), [(0, 9, 0.25), (3, 9, 0.25), (40, 200, 1 / 8)])
def test_the_binomial_tail(number: int, of: int, part: float) -> None:
    exact = sum(comb(of, k) * part**k * (1 - part) ** (of - k) for k in range(number, of + 1))
    assert at_least(number, of, part) == pytest.approx(exact, rel=1e-9)


def test_thousands_of_iterations() -> None:
    assert 0 <= at_least(275, 1_100, 1 / 64) < 1e-100
    assert at_least(0, 20_000, 1 / 64) == pytest.approx(1)


def test_ranks_without_others_are_late_by_chance() -> None:
    assert at_least(5, 5, 1.0) == 1
