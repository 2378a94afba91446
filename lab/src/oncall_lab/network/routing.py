"""Ways of flows through a fat tree: up by choice, down the only way there is.

Switches choose an uplink by a hash of a flow's addresses (ECMP), which knows nothing of load. What
operators do against collisions - source ports chosen well, or placement by the scheduler - is
`balanced`: each flow of a collective takes the way that its steps leave emptiest.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np

from oncall_lab.network.topology import FatTree

Path = tuple[int, ...]


def ways(tree: FatTree, src: int, dst: int) -> list[Path]:
    """All shortest ways between two hosts, as egress ports."""
    first, last = tree.edge_of(src), tree.edge_of(dst)
    pods, half = (tree.pod_of(src), tree.pod_of(dst)), range(tree.half)
    if first == last:
        return [tree.ports_along([src, first, dst])]
    if pods[0] == pods[1]:
        turns = [[tree.aggregation(pods[0], place)] for place in half]
    else:
        turns = [
            [
                tree.aggregation(pods[0], plane),
                tree.core(plane, c),
                tree.aggregation(pods[1], plane),
            ]
            for plane in half
            for c in half
        ]
    return [tree.ports_along([src, first, *turn, last, dst]) for turn in turns]


def hashed(tree: FatTree, src: int, dst: int, src_port: int) -> Path:
    """The way that switches hash a flow onto."""
    among = ways(tree, src, dst)
    return among[zlib.crc32(f"{src} {dst} {src_port}".encode()) % len(among)]


def balanced(
    tree: FatTree, flows: Sequence[tuple[int, int, Sequence[int]]], rng: np.random.Generator
) -> list[Path]:
    """A way for each flow (src, dst, steps it sends in) such that few meet in any step.

    Flows are placed one after another in some order, each where the fullest port it passes is
    emptiest; of several orders the best one is kept.
    """
    best: tuple[int, list[Path]] | None = None
    for _ in range(24):
        load: dict[tuple[int, int], int] = {}
        chosen: dict[int, Path] = {}
        for number in rng.permutation(len(flows)).tolist():
            src, dst, steps = flows[number]
            among = ways(tree, src, dst)
            fullest = [
                (max(load.get((step, port), 0) for step in steps for port in way), place)
                for place, way in enumerate(among)
            ]
            way = among[min(fullest)[1]]
            chosen[number] = way
            for step in steps:
                for port in way:
                    load[step, port] = load.get((step, port), 0) + 1
        most = max(load.values(), default=0)
        if best is None or most < best[0]:
            best = most, [chosen[number] for number in range(len(flows))]
        if most <= 1:
            break
    return best[1] if best else []


def meetings(paths: Sequence[Path], steps: Sequence[Sequence[int]]) -> dict[int, list[int]]:
    """Ports that two or more flows pass in one step, with these flows."""
    met: dict[int, set[int]] = {}
    passing: dict[tuple[int, int], list[int]] = {}
    for flow, (path, when) in enumerate(zip(paths, steps, strict=True)):
        for step in when:
            for port in path:
                passing.setdefault((step, port), []).append(flow)
    for (_, port), flows in passing.items():
        if len(flows) > 1:
            met.setdefault(port, set()).update(flows)
    return {port: sorted(flows) for port, flows in met.items()}
