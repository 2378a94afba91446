"""Strongly connected components of a directed graph, and which of them nothing leaves."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

Node = TypeVar("Node", bound=Hashable)


def components(edges: Mapping[Node, Sequence[Node]]) -> list[list[Node]]:
    """Tarjan's strongly connected components, without recursion, in reverse topological order.

    `edges` maps each node to its successors; successors need not be keys. O(nodes + edges).
    """
    index: dict[Node, int] = {}
    low: dict[Node, int] = {}
    on_path: set[Node] = set()
    path: list[Node] = []
    found: list[list[Node]] = []
    for start in edges:
        if start in index:
            continue
        index[start] = low[start] = len(index)
        path.append(start)
        on_path.add(start)
        work = [(start, iter(edges.get(start, ())))]
        while work:
            node, successors = work[-1]
            for successor in successors:
                if successor not in index:
                    index[successor] = low[successor] = len(index)
                    path.append(successor)
                    on_path.add(successor)
                    work.append((successor, iter(edges.get(successor, ()))))
                    break
                if successor in on_path:
                    low[node] = min(low[node], index[successor])
            else:
                work.pop()
                if work:
                    parent = work[-1][0]
                    low[parent] = min(low[parent], low[node])
                if low[node] == index[node]:
                    found.append(_close(node, path, on_path))
    return found


def _close(root: Node, path: list[Node], on_path: set[Node]) -> list[Node]:
    """Take the finished component of `root` off the path."""
    component: list[Node] = []
    while True:
        node = path.pop()
        on_path.discard(node)
        component.append(node)
        if node == root:
            return component


def sinks(edges: Mapping[Node, Sequence[Node]]) -> list[list[Node]]:
    """Components that no edge leaves: where every chain of waiting ends."""
    ends: list[list[Node]] = []
    for component in components(edges):
        inside = set(component)
        if all(s in inside for node in component for s in edges.get(node, ())):
            ends.append(component)
    return ends


def reaching(edges: Mapping[Node, Sequence[Node]], targets: Iterable[Node]) -> set[Node]:
    """Every node from which some target can be reached, the targets among them."""
    backward: dict[Node, list[Node]] = {}
    for node, successors in edges.items():
        for successor in successors:
            backward.setdefault(successor, []).append(node)
    reached = set(targets)
    queue = list(reached)
    while queue:
        for node in backward.get(queue.pop(), ()):
            if node not in reached:
                reached.add(node)
                queue.append(node)
    return reached
