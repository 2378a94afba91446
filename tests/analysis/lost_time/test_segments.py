"""What ranks did in most segments."""

from __future__ import annotations

import numpy as np

from oncall.analysis.lost_time.arrays import most_frequent


def test_the_most_frequent_of_each_column_counts() -> None:
    values = np.array([[7, 5, 0, 0, 3], [9, 5, 0, 0, 2], [9, 6, 0, 4, 2], [1, 6, 0, 0, 3]])
    assert most_frequent(values.astype(np.uint64)).tolist() == [9, 5, 0, 4, 2]


def test_of_a_single_row_each_value_is_the_most_frequent() -> None:
    assert most_frequent(np.array([[0, 8]], dtype=np.uint64)).tolist() == [0, 8]
