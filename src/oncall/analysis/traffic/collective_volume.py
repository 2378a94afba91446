"""How much NCCL's algorithms send: the volume of each rank, and of each edge of a ring or a tree.

Pulse, appendix B, for all-reduce, all-gather and reduce-scatter; broadcast and reduce by the same
count of what passes each edge. `bytes` is what the caller passed, as in `ops`: of an all-gather
what each rank contributes, of a reduce-scatter what each rank ends up with.
"""

from __future__ import annotations

from functools import cache

from oncall.analysis.common.peers import binary_tree_parent

RING_OPERATIONS = ("AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce")
TREE_OPERATIONS = ("AllReduce",)

Edge = tuple[int, int]  # place of the sender, place of the receiver


def ring_share(op: str, size: int) -> float | None:
    """Bytes a rank sends to its successor for each byte the caller passed, in a ring of `size`
    ranks; None for operations that have no ring. Of a broadcast or reduction it is what every edge
    carries but the one that closes the ring, which carries nothing."""
    if size < 2:
        return None
    match op:
        case "AllReduce":
            return 2 * (size - 1) / size
        case "AllGather" | "ReduceScatter":
            return float(size - 1)
        case "Broadcast" | "Reduce":
            return 1.0
    return None


@cache
def double_tree(size: int) -> dict[Edge, float]:
    """Both binary trees over `size` places (ncclGetDtree), each with half of the data: bytes along
    each edge for each byte the caller passed, up and down. Both trees may share an edge."""
    shares: dict[Edge, float] = {}
    for place in range(1, size):
        parent = binary_tree_parent(place, size)
        for a, b in ((place, parent), _in_second_tree(place, parent, size)):
            for edge in ((a, b), (b, a)):
                shares[edge] = shares.get(edge, 0.0) + 0.5
    return shares


def _in_second_tree(place: int, parent: int, size: int) -> Edge:
    """The first tree mirrored, or for an odd size shifted by one, so that leaves become inner."""
    if size % 2 == 0:
        return size - 1 - place, size - 1 - parent
    return (place + 1) % size, (parent + 1) % size
