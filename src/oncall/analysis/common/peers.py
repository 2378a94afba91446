"""Which members of a communicator may be compared: all of a ring, one layer of a tree.

"Only ranks within the same tree layer exhibit consistent SendCount/RecvCount" (CCL-D 4.2.1).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import duckdb

from oncall.evidence import relation


@relation(
    "layers",
    reads=["members"],
    optional=["ops"],
    columns=[
        "job",
        ("comm", "UBIGINT", "", "communicator that uses a tree"),
        "rank",
        ("layer", "INTEGER", "", "depth of the rank in the tree, 0 = root"),
    ],
    source="CCL-D 4.2.1",
)
def layers(con: duckdb.DuckDBPyConnection) -> Mapping[str, Any]:
    """Tree depth of each member of communicators that use trees: as recorded, else NCCL's shape."""
    found = con.execute(
        """SELECT job, comm, rank, coalesce(comm_rank, rank) AS place, node, tree_layer
           FROM members SEMI JOIN (
               SELECT DISTINCT job, comm FROM ops WHERE algo ILIKE '%TREE%') USING (job, comm)
           ORDER BY job, comm, place"""
    ).fetchall()
    groups: dict[tuple[str, int], list[tuple[Any, ...]]] = defaultdict(list)
    for job, comm, rank, _, node, layer in found:
        groups[job, comm].append((rank, node, layer))
    rows: list[tuple[str, int, int, int]] = []
    for (job, comm), group in groups.items():
        shape = tree_depths([node for _, node, _ in group])
        rows += [
            (job, comm, rank, depth if layer is None else layer)
            for (rank, _, layer), depth in zip(group, shape, strict=True)
        ]
    names = ("job", "comm", "rank", "layer")
    return {name: [row[i] for row in rows] for i, name in enumerate(names)}


def tree_depths(nodes: list[str | None]) -> list[int]:
    """Depth of each member in NCCL's tree: a chain within a node, a binary tree between nodes.

    `nodes` gives each member's host in order of its rank within the communicator; unknown hosts
    count as one host each.
    """
    hosts: dict[object, int] = {}
    position: dict[object, int] = defaultdict(int)
    depths: list[int] = []
    keys: list[object] = [node if node is not None else i for i, node in enumerate(nodes)]
    for key in keys:
        hosts.setdefault(key, len(hosts))
    for key in keys:
        depths.append(binary_tree_depth(hosts[key], len(hosts)) + position[key])
        position[key] += 1
    return depths


def binary_tree_depth(place: int, size: int) -> int:
    """Depth of `place` in NCCL's binary tree over `size` places."""
    depth = 0
    while place:
        place = binary_tree_parent(place, size)
        depth += 1
    return depth


def binary_tree_parent(place: int, size: int) -> int:
    """The parent of `place` > 0 in NCCL's binary tree over `size` places (ncclGetBtree)."""
    bit = place & -place
    parent = (place ^ bit) | (bit << 1)
    return parent if parent < size else place ^ bit
