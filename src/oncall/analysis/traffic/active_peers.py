"""Active peers: the ranks that a rank really sends to in an operation, and the algorithm that this
shows.

"Different communication algorithms require a GPU to transmit data to different sets of peers"
(Pulse 5.1): around a ring to a successor, on a tree to parent and children. Peers that only get
messages about free buffers receive next to nothing and do not count.

How much NCCL's algorithms send: the volume of each rank, and of each edge of a ring or a tree.

Pulse, appendix B, for all-reduce, all-gather and reduce-scatter; broadcast and reduce by the same
count of what passes each edge. `bytes` is what the caller passed, as in `ops`: of an all-gather
what each rank contributes, of a reduce-scatter what each rank ends up with.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Set
from dataclasses import dataclass
from functools import cache

import duckdb
import numpy as np

from oncall.analysis.common.peers import binary_tree_parent
from oncall.analysis.traffic.flows import Sent, Spans, sent_by_flow, union_of

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


RING, TREE = "RING", "TREE"


def inferred_algorithm(op: str, edges: Set[Edge], size: int, tree_edges: float) -> str | None:
    """RING or TREE by which rank sends to which, or None: neither, or an operation without either.

    `edges` are places of nodes in the communicator, sender first, of those senders that were
    seen; `size` counts all places. Two places are a ring and a tree at once, with equal volumes.
    It is a tree if at least the share `tree_edges` of its edges was seen, and nothing else.
    """
    if ring_share(op, size) is None or not edges:
        return None
    if op not in TREE_OPERATIONS or size == 2:
        return RING
    senders = {sender for sender, _ in edges}
    on_trees = {edge for edge in double_tree(size) if edge[0] in senders}
    if edges <= on_trees and len(edges) >= tree_edges * len(on_trees):
        return TREE
    successors = defaultdict(set)
    for sender, receiver in edges:
        successors[sender].add(receiver)
    # Channels may go round in different orders, but each rank has as many successors.
    return RING if len({len(after) for after in successors.values()}) == 1 else None


Shape = tuple[str, int, str, int]  # job, communicator, operation, bytes


@dataclass(frozen=True)
class Active:
    """One active peer of a rank: the peer if known, its side, and queue pairs that carry data."""

    rank: int
    peer: int | None
    side: int
    flows: int


def active_peers(con: duckdb.DuckDBPyConnection, crumbs: float) -> dict[Shape, list[Active]]:
    """The peers of each rank in each shape of collective. `crumbs`: a flow that carries less of its
    rank's largest one only announces buffers."""
    shapes = _shapes(con)
    flows = con.execute(
        """SELECT e.job, c.comm, e.rank, e.peer_side, e.peer, flow
           FROM flow_ends e JOIN flow_comms c USING (flow)
           WHERE c.comm IS NOT NULL AND rank IS NOT NULL ORDER BY ALL"""
    ).fetchall()
    sent = sent_by_flow(con, {row[-1] for row in flows}) if shapes else {}
    # What each flow to a side carries in the operations of one shape.
    carried: dict[tuple[Shape, int], dict[tuple[int, int | None], list[int]]] = defaultdict(dict)
    for job, comm, rank, side, peer, flow in flows:
        for op, size, spans in shapes.get((job, comm, rank), ()):
            inside = _bytes_within(sent[flow], spans) if flow in sent else 0
            if inside:
                sides = carried[(job, comm, op, size), rank]
                sides.setdefault((side, peer), []).append(inside)
    found: dict[Shape, list[Active]] = defaultdict(list)
    for (shape, rank), sides in carried.items():
        least = crumbs * max(map(max, sides.values()))
        for (side, peer), each in sides.items():
            if data := sum(much > least for much in each):
                found[shape].append(Active(rank, peer, side, data))
    return found


def _bytes_within(sent: Sent, spans: Spans) -> int:
    begin = np.searchsorted(sent.start_ns, spans.begin_ns)
    end = np.searchsorted(sent.start_ns, spans.end_ns)
    return int((sent.before[end] - sent.before[begin]).sum())


def _shapes(
    con: duckdb.DuckDBPyConnection,
) -> dict[tuple[str, int, int], list[tuple[str, int, Spans]]]:
    """Of each member the shapes of its collectives, with when it was in them."""
    found = con.execute(
        """SELECT job, comm, rank, op, bytes, list(begin_ns), list(end_ns) FROM operation_spans
           WHERE kind = 'coll' AND bytes > 0 AND op <> 'Barrier' GROUP BY ALL ORDER BY ALL"""
    ).fetchall()
    shapes: dict[tuple[str, int, int], list[tuple[str, int, Spans]]] = defaultdict(list)
    for job, comm, rank, op, size, begins, ends in found:
        spans = union_of(np.array(begins, dtype=np.int64), np.array(ends, dtype=np.int64))
        shapes[job, comm, rank].append((op, size, spans))
    return shapes
