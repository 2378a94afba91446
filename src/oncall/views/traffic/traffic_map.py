"""Who sent how much to whom: bytes by rank and peer, of an operation or a whole communicator.

Of experts' all-to-all it is the routing of tokens: an uneven column is a busy expert and no fault
(Pulse 7.2.4).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oncall.core.nodeset import fold_ranks

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class TrafficMap:
    """Bytes (ranks, ranks) from row to column; `groups` are the ranks of each row and column.

    `unplaced_bytes` were sent to peers that are not known.
    """

    title: str
    groups: tuple[tuple[int, ...], ...]
    bytes: Ints
    unplaced_bytes: int = 0
    blamed: frozenset[int] = frozenset()

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(fold_ranks(group) for group in self.groups)

    def is_blamed(self, row: int) -> bool:
        return not self.blamed.isdisjoint(self.groups[row])

    def received(self) -> Ints:
        """(ranks,) what each was sent."""
        total: Ints = self.bytes.sum(axis=0)
        return total


def folded(shown: TrafficMap, most: int) -> TrafficMap:
    """The map with at most `most` rows: neighbouring ranks are put together, as many in each, a
    power of two as of GPUs in a node."""
    if len(shown.groups) <= most:
        return shown
    each = 2 ** math.ceil(math.log2(len(shown.groups) / max(most, 1)))
    begins = np.arange(0, len(shown.groups), each)
    cells = np.add.reduceat(np.add.reduceat(shown.bytes, begins, axis=0), begins, axis=1)
    groups = tuple(
        tuple(rank for group in shown.groups[begin : begin + each] for rank in group)
        for begin in begins.tolist()
    )
    return TrafficMap(shown.title, groups, cells, shown.unplaced_bytes, shown.blamed)
