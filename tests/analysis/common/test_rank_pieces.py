"""Operations of many ranks in order: as they come, or sorted where they do not come so."""

from __future__ import annotations

import numpy as np
import pytest

from oncall.analysis.common.ordering import in_order, rank_pieces
from oncall.evidence import Incident


def test_what_comes_in_order_is_left_as_it_is() -> None:
    rank, at = np.array([0, 0, 0, 2]), np.array([5, 5, 7, 1])
    assert in_order(rank, at) is None
    assert in_order(rank[:0], at[:0]) is None


@pytest.mark.parametrize("seed", range(20))
def test_the_order_is_that_of_a_sort_by_all_keys(seed: int) -> None:
    random = np.random.default_rng(seed)
    rank = random.integers(0, 5, 60)
    if seed % 2:
        rank = np.sort(rank)
    keys = [random.integers(0, 4, 60) for _ in range(3)]
    keys[0][rank == 3] = np.arange((rank == 3).sum())  # one that comes in order
    expected = np.lexsort([*reversed(keys), rank])
    assert in_order(rank, *keys).tolist() == expected.tolist()


def test_every_rank_is_in_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oncall.analysis.common.ordering.AT_ONCE", 10)
    with Incident.empty() as incident:
        ranks = np.repeat([7, 1, 2, 4], [4, 5, 30, 3])
        columns = {"job": "j", "rank": ranks, "comm": 1, "op": "AllReduce", "seq": 1}
        incident.append("ops", columns | {"enqueued_ns": np.arange(len(ranks))})
        incident.require(["operations"])
        pieces = list(rank_pieces(incident.con, "j"))
    held = [rank for rank in (1, 2, 4, 7) for low, high in pieces if low <= rank <= high]
    assert held == [1, 2, 4, 7]
    assert len(pieces) > 1
