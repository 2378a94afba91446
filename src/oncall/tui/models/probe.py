"""Which nodes a reader can have probed, and why not. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from oncall.core.diagnosis import Finding
from oncall.views.snapshot import Snapshot


def blamed_nodes(snapshot: Snapshot, finding: Finding | None) -> tuple[str, ...]:
    """The nodes that a finding blames, or whose ranks it blames."""
    found: dict[str, None] = {}
    for blame in finding.blame if finding is not None else ():
        node = blame.where.get("node")
        rank = blame.where.get("rank")
        if node is None and rank is not None:
            node = node_of(snapshot, int(rank))
        if node:
            found[str(node)] = None
    return tuple(found)


def node_of(snapshot: Snapshot, rank: int) -> str:
    """The node that a rank ran on; empty where unknown."""
    at = snapshot.ranks.place(rank)
    return "" if at is None else snapshot.ranks.node[at]


def why_not_probed(snapshot: Snapshot, live: bool, nodes: Sequence[str]) -> str | None:
    """Why none of the nodes can be probed; None if one can. What a node that does not answer can
    do is not known, so it is tried."""
    if not live:
        return "this is a recording, so there are no nodes to probe"
    refusing = {one.host: one.no_probe for one in snapshot.hosts if one.no_probe}
    refusals = [f"{node}: {refusing[node]}" for node in nodes if node in refusing]
    return refusals[0] if refusals and len(refusals) == len(nodes) else None
