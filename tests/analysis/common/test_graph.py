"""Graphs against naive reachability: sets of nodes, walked until nothing is added."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from oncall.analysis.common.graph import components, reaching, sinks

Edges = Mapping[int, Sequence[int]]

graphs = st.dictionaries(st.integers(0, 11), st.lists(st.integers(0, 11), max_size=4), max_size=12)


def nodes(edges: Edges) -> set[int]:
    return set(edges).union(*edges.values())


def reached(edges: Edges, start: int) -> set[int]:
    """`start` and every node some path leads to from it."""
    found = {start}
    while more := {s for node in found for s in edges.get(node, ())} - found:
        found |= more
    return found


@given(graphs)
def test_components_are_the_sets_that_reach_each_other(edges: Edges) -> None:
    expected = {
        frozenset(m for m in reached(edges, n) if n in reached(edges, m)) for n in nodes(edges)
    }
    found = components(edges)
    assert {frozenset(component) for component in found} == expected
    assert sum(map(len, found)) == len(nodes(edges))


@given(graphs)
def test_components_come_after_all_that_they_lead_to(edges: Edges) -> None:
    place = {node: i for i, component in enumerate(components(edges)) for node in component}
    assert all(place[s] <= place[node] for node, successors in edges.items() for s in successors)


@given(graphs)
def test_sinks_are_what_no_path_leaves(edges: Edges) -> None:
    ends = {node for sink in sinks(edges) for node in sink}
    stays = {n for n in nodes(edges) if all(n in reached(edges, m) for m in reached(edges, n))}
    assert ends == stays


@given(graphs, st.sets(st.integers(0, 11)))
def test_reaching_is_reachability_backwards(edges: Edges, targets: set[int]) -> None:
    expected = {n for n in nodes(edges) if reached(edges, n) & targets} | targets
    assert reaching(edges, targets) == expected


def test_depth_is_no_limit() -> None:
    count = 100_000
    chain = {i: [i + 1] for i in range(count)}
    assert [len(found) for found in components(chain)] == [1] * (count + 1)
    assert len(reaching(chain, [count])) == count + 1
    assert [len(found) for found in sinks({**chain, count: [0]})] == [count + 1]


def test_nothing_has_no_components() -> None:
    assert components({}) == sinks({}) == []
    assert reaching({}, []) == set()
