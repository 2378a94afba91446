"""Evidence as a collector writes it, for tests of the store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from oncall.evidence.columns import Words
from oncall.node.store.batch import Batch
from oncall.node.store.catalog import Shard
from oncall.node.store.writer import LiveStore, Place

SECOND_NS = 10**9
EPOCH_NS = 10**18


def _operations(count: int, first: int = 1, rank: int = 3) -> Batch:
    """`count` finished all-reduces of one rank, numbered from `first`."""
    seq = np.arange(first, first + count)
    return Batch(
        "ops",
        count,
        {
            "job": "llama",
            "comm": 0xFEDC_BA98_7654_3210,
            "seq": seq,
            "rank": rank,
            "kind": "coll",
            "op": Words(np.zeros(count, np.int32), ["AllReduce"]),
            "started_ns": EPOCH_NS + seq * 1000,
            "ended_ns": EPOCH_NS + seq * 1000 + 500,
            "done": True,
        },
    )


def _sealed(folder: Path, number: int, rows: int = 100, node: str = "gpu017") -> Shard:
    """The `number`-th shard of a node: ten seconds and `rows` operations."""
    start_ns = EPOCH_NS + number * 10 * SECOND_NS
    store = LiveStore(Place(folder, node), start_ns)
    store.write([_operations(rows, first=number * rows + 1)])
    return store.seal(start_ns + 10 * SECOND_NS - 1)


@pytest.fixture
def operations() -> Callable[..., Batch]:
    return _operations


@pytest.fixture
def sealed() -> Callable[..., Shard]:
    return _sealed
