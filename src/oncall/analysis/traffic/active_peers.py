"""Active peers: the ranks that a rank really sends to in an operation, and the algorithm that this
shows.

"Different communication algorithms require a GPU to transmit data to different sets of peers"
(Pulse 5.1): around a ring to a successor, on a tree to parent and children. Peers that only get
messages about free buffers receive next to nothing and do not count.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Any

import duckdb
import numpy as np

from oncall.analysis.traffic.collective_volume import TREE_OPERATIONS, Edge, double_tree, ring_share
from oncall.analysis.traffic.flows import Sent, Spans, sent_by_flow, union_of
from oncall.evidence import Param, relation

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


_COLUMNS = [
    ("job", "VARCHAR", "", "the job"),
    ("comm", "UBIGINT", "", "communicator"),
    ("op", "VARCHAR", "", "a collective"),
    ("bytes", "BIGINT", "bytes", "its size"),
    ("rank", "INTEGER", "", "a member that sends"),
    ("peer", "INTEGER", "", "the receiver; NULL: unknown"),
    ("peer_side", "UBIGINT", "", "distinguishes receivers, known or not"),
    ("flows", "INTEGER", "", "queue pairs, or channels, that carry its data there"),
    ("sent_bytes", "BIGINT", "bytes", "sent there in all operations of that shape"),
]


@dataclass
class _Peer:
    """What goes to one peer in operations of one shape."""

    peer: int | None
    sent: list[int] = field(default_factory=list)  # of each flow


@relation(
    "active_peers",
    reads=["flow_ends", "flow_comms", "flow_epochs", "operation_spans"],
    columns=_COLUMNS,
    source="Pulse 5.1",
    at="node",
    params={
        "crumbs": Param("2 %", "of its rank's largest flow: a smaller one only announces buffers")
    },
)
def active_peers(con: duckdb.DuckDBPyConnection, *, crumbs: float) -> Mapping[str, Any]:
    """The peers of each rank in each shape of collective: operation and size."""
    shapes = _shapes(con)
    flows = con.execute(
        """SELECT e.job, c.comm, e.rank, e.peer, e.peer_side, flow
           FROM flow_ends e JOIN flow_comms c USING (flow)
           WHERE c.comm IS NOT NULL AND rank IS NOT NULL"""
    ).fetchall()
    sent = sent_by_flow(con, {row[-1] for row in flows}) if shapes else {}
    peers: dict[tuple[Any, ...], dict[int, _Peer]] = defaultdict(dict)
    for job, comm, rank, peer, side, flow in flows:
        for op, size, spans in shapes.get((job, comm, rank), ()):
            inside = _bytes_within(sent[flow], spans) if flow in sent else 0
            if inside:
                to = peers[job, comm, op, size, rank].setdefault(side, _Peer(peer))
                to.sent.append(inside)
    rows: list[tuple[Any, ...]] = []
    for shape, sides in peers.items():
        least = crumbs * max(max(one.sent) for one in sides.values())
        for side, one in sides.items():
            data = [much for much in one.sent if much > least]
            if data:
                rows.append((*shape, one.peer, side, len(data), sum(data)))
    return {name: [row[i] for row in rows] for i, (name, *_) in enumerate(_COLUMNS)}


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
