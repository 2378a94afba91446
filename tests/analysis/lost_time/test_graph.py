"""The replay against a plain simulation of the same calls."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from oncall.analysis.lost_time.graph import Graph, Rounds, ordered


def drawn_graph(groups: list[list[int]], ranks: int) -> Graph:
    """Collectives one after the other, each of some ranks."""
    length = np.array([sum(rank in group for group in groups) for rank in range(ranks)])
    width = max(int(length.max()), 1)
    at = [0] * ranks
    nodes, start = [], []
    for group in groups:
        start.append(len(nodes))
        for rank in group:
            nodes.append(rank * width + at[rank])
            at[rank] += 1
    rounds = Rounds(
        *(np.array(each, dtype=np.int64) for each in (nodes, start, start, start, start)),
        whole=np.ones(len(start), dtype=np.bool_),
    )
    none = np.zeros(0, dtype=np.int64)
    return Graph(length, width, np.zeros(ranks, np.int64), rounds, none, none, none)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_collectives_end_when_the_last_member_is_there(data: st.DataObject) -> None:
    ranks = data.draw(st.integers(2, 5))
    members = st.lists(st.integers(0, ranks - 1), min_size=1, unique=True)
    groups = data.draw(st.lists(members, min_size=1, max_size=12))
    graph = drawn_graph(groups, ranks)
    nodes = ranks * graph.width
    draw = np.random.default_rng(data.draw(st.integers(0, 99)))
    own = draw.integers(0, 50, (nodes, 3)).astype(float)
    takes = draw.integers(0, 9, (len(groups), 3)).astype(float)
    order = ordered(graph, np.zeros(nodes, dtype=np.bool_))
    assert order.complete
    end, _ = order.replay(own, takes, np.zeros((0, 3)))
    for column in range(3):
        now, at = [0.0] * ranks, [0] * ranks
        for number, group in enumerate(groups):
            for rank in group:
                now[rank] += own[rank * graph.width + at[rank], column]
                at[rank] += 1
            over = max(now[rank] for rank in group) + takes[number, column]
            for rank in group:
                now[rank] = over
        assert end[column] == max(now)


def test_calls_in_a_cycle_are_no_order() -> None:
    """Two ranks that call two collectives in opposite order."""
    graph = drawn_graph([[0, 1], [0, 1]], 2)
    crossed = np.array([0, 3, 1, 2])
    rounds = Rounds(crossed, *(np.array([0, 2]) for _ in range(4)), whole=np.array([True, True]))
    crossed_graph = Graph(**{**vars(graph), "rounds": rounds})
    assert not ordered(crossed_graph, np.zeros(4, dtype=np.bool_)).complete


def test_a_send_meets_its_receive() -> None:
    none = np.zeros(0, dtype=np.int64)
    graph = Graph(
        length=np.array([1, 1]),
        width=1,
        role=np.zeros(2, np.int64),
        rounds=Rounds(none, none, none, none, none, none > 0),
        sender=np.array([0]),
        receiver=np.array([1]),
        unmatched=none,
    )
    order = ordered(graph, np.zeros(2, dtype=np.bool_))
    end, reached = order.replay(np.array([[5.0], [30.0]]), np.zeros((0, 1)), np.array([[4.0]]))
    assert (end[0], reached[:, 0].tolist()) == (34.0, [5.0, 30.0])
