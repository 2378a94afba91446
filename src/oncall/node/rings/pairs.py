"""The number of a Send or Recv among those between the same two ranks in the same direction.

Both sides count alike, so the n-th Send of one is the n-th Recv of the other. A count is only
worth something from the first on: where one went unseen, all later ones of that communicator
have no number, rather than a wrong one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from oncall.node.rings.ring_layout import PAIRED

Array: TypeAlias = np.ndarray[Any, Any]


class PairNumbers:
    """Counts Sends and Recvs by communicator, peer and direction."""

    def __init__(self, remembered: Mapping[str, int] | None = None) -> None:
        """`remembered`: the content of an earlier collector's `bookmarks`."""
        self._last: dict[int, int] = {}  # communicator -> last sequence number seen
        self._lost: set[int] = set()  # communicators of which one went unseen
        self._counts: dict[tuple[int, int, int], int] = {}  # communicator, peer, operation
        for name, count in (remembered or {}).items():
            match tuple(map(int, name.split("/"))):
                case (communicator,):
                    self._last[communicator] = count
                case (communicator, peer, op):
                    self._counts[communicator, peer, op] = count

    @property
    def bookmarks(self) -> dict[str, int]:
        """What to go on with after a restart: of communicators of which none went unseen."""
        last = {str(c): count for c, count in self._last.items() if c not in self._lost}
        counts = {
            f"{key[0]}/{key[1]}/{key[2]}": count
            for key, count in self._counts.items()
            if key[0] not in self._lost
        }
        return last | counts

    def number(self, operations: Array) -> None:
        """Set `pair_seq` of newly entered operations, in place; 0 where it is not known."""
        among = np.flatnonzero(operations["point_to_point"])
        if not len(among):
            return
        order = np.lexsort((operations["sequence"][among], operations["communicator"][among]))
        among = among[order]
        sorted_by_communicator = operations["communicator"][among]
        starts = np.flatnonzero(
            np.append(True, sorted_by_communicator[1:] != sorted_by_communicator[:-1])
        )
        for part in np.split(among, starts[1:]):
            communicator = int(operations["communicator"][part[0]])
            self._watch(communicator, operations["sequence"][part])
            if communicator not in self._lost:
                self._count(communicator, operations, part)

    def _watch(self, communicator: int, sequence: Array) -> None:
        """Note a gap: sequence numbers of Send and Recv on a communicator follow each other."""
        last = self._last.get(communicator, 0)
        if sequence[0] != last + 1 or (np.diff(sequence) != 1).any():
            self._lost.add(communicator)
        self._last[communicator] = int(sequence[-1])

    def _count(self, communicator: int, operations: Array, part: Array) -> None:
        """Number one communicator's operations, given in order."""
        for op in PAIRED:
            of_op = part[operations["op"][part] == op]
            peers = operations["peer"][of_op]
            for peer in np.unique(peers):
                of_peer = of_op[peers == peer]
                key = (communicator, int(peer), int(op))
                counted = self._counts.get(key, 0)
                operations["pair_seq"][of_peer] = counted + 1 + np.arange(len(of_peer))
                self._counts[key] = counted + len(of_peer)
