"""Quantiles are numpy's of what is known."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from oncall.analysis.common.ordering import order_of
from oncall.analysis.common.quantiles import median, quantile, quantile_of_alike

SHARES = st.sampled_from([0.25, 0.5])


@given(st.integers(0, 2**32), st.integers(1, 5), st.integers(0, 9), SHARES)
def test_each_row_has_the_quantile_of_what_is_known(
    seed: int, rows: int, columns: int, share: float
) -> None:
    rng = np.random.default_rng(seed)
    values = rng.integers(-5, 10**9, (rows, columns)).astype(float)
    known = rng.random((rows, columns)) < rng.random()
    with np.errstate(all="raise"):
        found = quantile(np.where(known, values, np.nan), share, 1)
    for mine, which, one in zip(values, known, found, strict=True):
        if which.any():
            assert np.isclose(one, np.quantile(mine[which], share), rtol=1e-12)
        else:
            assert np.isnan(one)


def test_a_median_lies_between_the_two_in_the_middle() -> None:
    assert median(np.array([[4.0, 1, 3, 100]]), 1) == [3.5]


@given(st.integers(0, 2**32), st.integers(0, 30), SHARES)
def test_what_is_alike_has_the_lower_quantile_of_what_is_known(
    seed: int, size: int, share: float
) -> None:
    rng = np.random.default_rng(seed)
    key = rng.integers(-1, 4, size)
    values = rng.choice([np.nan, 1.0, 2.0, 3.0, 7.0], size)
    found, number = quantile_of_alike(key, values, share)
    for mine, one, known in zip(key, found, number, strict=True):
        alike = values[(key == mine) & ~np.isnan(values)]
        assert known == len(alike)
        if known:
            assert one == np.quantile(alike, share, method="lower")
        else:
            assert np.isnan(one)


@given(st.lists(st.one_of(st.integers(-3, 3), st.integers(-(2**63), 2**63 - 1)), max_size=30))
def test_integers_are_ordered_as_a_stable_sort_orders_them(keys: list[int]) -> None:
    key = np.array(keys, dtype=np.int64)
    assert order_of(key).tolist() == np.argsort(key, kind="stable").tolist()
