"""What comes before and after each of a row."""

from __future__ import annotations

import numpy as np

from oncall.analysis.tasks.neighbours import after, before


def test_what_comes_before_and_after_ends_with_the_row() -> None:
    values = np.array([[1, 2, 3], [4, 5, 6]])
    assert before(values, -1).tolist() == [[-1, 1, 2], [-1, 4, 5]]
    assert after(values, -1).tolist() == [[2, 3, -1], [5, 6, -1]]
    assert after(np.zeros((2, 0), dtype=np.int64), -1).shape == (2, 0)
