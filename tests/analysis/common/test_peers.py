"""Peers: the shape of NCCL's tree, and what a recording says of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sql import found

from oncall.analysis.common.peers import binary_tree_depth, tree_depths
from oncall.evidence import Incident


def children(place: int, size: int) -> Iterator[int]:
    """The two children ncclGetBtree gives `place`: it goes down, where we go up."""
    if place == 0:
        top = 1 << (size - 1).bit_length() >> 1
        if top:
            yield top
        return
    low = (place & -place) >> 1
    if low:
        yield place - low
    while low and place + low >= size:
        low >>= 1
    if low:
        yield place + low


def depths(size: int) -> list[int]:
    found = {0: 0}
    level = [0]
    while level:
        level = [child for place in level for child in children(place, size)]
        found |= dict.fromkeys(level, max(found.values()) + 1)
    return [found[place] for place in range(size)]


@pytest.mark.parametrize(
    ("size", "shape"),
    [
        (1, [0]),
        (2, [0, 1]),
        (4, [0, 2, 1, 2]),
        (5, [0, 3, 2, 3, 1]),
        (8, [0, 3, 2, 3, 1, 3, 2, 3]),
        # NCCL's own drawing in trees.cc: 0 over 8; 8 over 4 and 12; 12 over 10 and 13
        (14, [0, 4, 3, 4, 2, 4, 3, 4, 1, 4, 3, 4, 2, 3]),
    ],
)
def test_the_shape_of_small_trees(size: int, shape: list[int]) -> None:
    assert [binary_tree_depth(place, size) for place in range(size)] == shape


@given(st.integers(1, 600))
def test_depths_are_those_that_nccl_reaches_from_the_root(size: int) -> None:
    found = [binary_tree_depth(place, size) for place in range(size)]
    assert found == depths(size)
    assert max(found) <= (size - 1).bit_length()
    assert found.count(0) == 1


def test_a_chain_within_each_node() -> None:
    assert tree_depths(["a", "a", "b", "b", "c", "c"]) == [0, 1, 2, 3, 1, 2]
    assert tree_depths(["a", "b", "a", "b"]) == [0, 1, 1, 2]


def test_unknown_hosts_are_one_host_each() -> None:
    assert tree_depths([None] * 4) == [0, 2, 1, 2]
    assert tree_depths([]) == []


def layers(incident: Incident) -> list[tuple[int, int, int]]:
    return found(incident, "layers", "comm, rank, layer")


def test_only_communicators_with_trees_have_layers() -> None:
    with Incident.empty() as incident:
        incident.append("comms", {"job": "j", "comm": [1] * 3 + [2] * 3, "rank": [0, 1, 2] * 2})
        algorithms = ["RING", "Tree", None]
        incident.append("ops", {"job": "j", "comm": [1, 2, 2], "rank": 0, "algo": algorithms})
        assert layers(incident) == [(2, 0, 0), (2, 1, 2), (2, 2, 1)]


def test_the_recorded_layer_is_believed_and_places_follow_the_rank_within() -> None:
    with Incident.empty() as incident:
        incident.append("ops", {"job": "j", "comm": 1, "rank": [7], "algo": "TREE"})
        incident.append(
            "comms",
            {"job": "j", "comm": 1, "rank": [7, 5, 3], "comm_rank": [0, 1, 2]}
            | {"tree_layer": [None, 9, None]},
        )
        assert layers(incident) == [(1, 3, 1), (1, 5, 9), (1, 7, 0)]
