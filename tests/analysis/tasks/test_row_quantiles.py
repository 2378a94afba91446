"""Quantiles of rows are numpy's of what counts in each."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from oncall.analysis.tasks.row_quantiles import after, before, median_of, quantile_of


@given(st.integers(0, 2**32), st.integers(1, 5), st.integers(0, 9), st.sampled_from([0.25, 0.5]))
def test_each_row_has_the_quantile_of_what_is_known(
    seed: int, rows: int, columns: int, share: float
) -> None:
    rng = np.random.default_rng(seed)
    values = rng.integers(-5, 10**9, (rows, columns))
    known = rng.random((rows, columns)) < rng.random()
    with np.errstate(all="raise"):
        found = quantile_of(values, known, share)
    for mine, which, one in zip(values, known, found, strict=True):
        if which.any():
            assert one == np.quantile(mine[which], share)
        else:
            assert np.isnan(one)


def test_a_median_lies_between_the_two_in_the_middle() -> None:
    assert median_of(np.array([[4, 1, 3, 100]]), np.array([[1, 1, 1, 1]], dtype=bool)) == [3.5]


def test_what_comes_before_and_after_ends_with_the_row() -> None:
    values = np.array([[1, 2, 3], [4, 5, 6]])
    assert before(values, -1).tolist() == [[-1, 1, 2], [-1, 4, 5]]
    assert after(values, -1).tolist() == [[2, 3, -1], [5, 6, -1]]
    assert after(np.zeros((2, 0), dtype=np.int64), -1).shape == (2, 0)
