"""Which operations are known to be over, by the newest of each communicator. Pure.

A board names the last operation entered on its communicator and counts those that ended, in any
order. So the last one may be over while an older one is in flight.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]
_MOST_KEPT = 4_096  # communicators, the newest: as many as boards are kept of


class NewestOver:
    """The newest operation that is over, of each communicator and kind (collective or not)."""

    def __init__(self, packed: bytes = b"") -> None:
        """`packed`: the bookmark of an earlier collector; without one nothing is known."""
        # Rows: communicator and kind as one key, number of the operation; sorted.
        self._newest: Array = np.zeros((0, 2), np.int64)
        if len(packed) % (2 * self._newest.itemsize) == 0:
            self._newest = np.frombuffer(packed, np.int64).reshape(-1, 2)

    @property
    def packed(self) -> bytes:
        """What the next collector goes on with."""
        return self._newest.tobytes()

    def saw(self, operations: Array) -> None:
        """These (OPERATION) are over: their rows are made, and nothing more will come of them."""
        if not len(operations):
            return
        seen = np.column_stack([_keys(operations), operations["operation"].astype(np.int64)])
        seen = np.concatenate([self._newest, seen])
        seen = seen[np.lexsort((seen[:, 1], seen[:, 0]))]
        is_last = np.append(seen[1:, 0] != seen[:-1, 0], True)
        self._newest = seen[is_last][-_MOST_KEPT:]

    def covers(self, last: Array) -> Array:
        """Whether each of these (OPERATION), the last entered of its kind on its communicator, is
        over: (n,) of bool."""
        newest = dict(self._newest.tolist())
        keys = _keys(last).tolist()
        numbers = last["operation"].tolist()
        return np.array(
            [number <= newest.get(key, 0) for key, number in zip(keys, numbers, strict=True)], bool
        )


def _keys(operations: Array) -> Array:
    keys: Array = operations["communicator"].astype(np.int64) * 2 + operations["point_to_point"]
    return keys
