"""The waiting graph as it is drawn: which senders, how far the path is folded, what lines show."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncall.core.errors import UsageError
from oncall.core.printable import to_ascii
from oncall.evidence.incident import Incident
from oncall.render.svg.waiting import waiting_svg
from oncall.render.text.lines import plain_lines
from oncall.render.text.waiting import chain_lines, waiting_lines
from oncall.views.network.waiting import Step, chain, find_collective, waiting_graph, window

Make = Callable[[str], Incident]
Ring = Callable[[int, int, tuple[int, int], int], Incident]
MS = 10**6


def steps(lost: list[int]) -> tuple[Step, ...]:
    """A path of steps one after the other, each 10 ms and what it lost in ms."""
    ends = list(itertools.accumulate(10 * MS + ms * MS for ms in lost))
    return tuple(
        Step(0, 1, number, end - (10 + ms) * MS, end, expected_ns=10 * MS, excess_ns=ms * MS,
             late=ms > 0, critical=True)
        for number, (end, ms) in enumerate(zip(ends, lost, strict=True), 1)
    )  # fmt: skip


@given(st.lists(st.integers(0, 5), min_size=1, max_size=60), st.integers(1, 14))
def test_a_chain_keeps_every_step_once_and_a_window_the_most_that_was_lost(
    lost: list[int], most: int
) -> None:
    path = steps(lost)
    links = chain(path, most)
    assert tuple(step for link in links for step in link.steps) == path
    assert sum(link.late and len(link.steps) == 1 for link in links) >= min(
        most, sum(map(bool, lost))
    )
    first, last = window(path, most)
    inside = [step for step in path if step.started_ns >= first and step.ended_ns <= last]
    assert len(inside) == min(most, len(path))
    runs = [lost[at : at + len(inside)] for at in range(len(path) - len(inside) + 1)]
    assert sum(step.excess_ns for step in inside) == max(map(sum, runs)) * MS


def test_a_thousand_senders_are_counted_and_those_that_wait_are_drawn(ring_of: Ring) -> None:
    members, rounds, slow = 1024, 40, (500, 20)
    with ring_of(members, rounds, slow, 5 * MS) as incident:
        graph = waiting_graph(incident, find_collective(incident), most=6)
    assert graph.worst is not None
    assert (graph.worst.src, graph.worst.step) == slow
    ranks = [lane.rank for lane in graph.lanes]
    assert {500, 501} <= set(ranks) and len(ranks) <= 6
    assert all(any(step.critical for step in lane.steps) for lane in graph.lanes)
    assert graph.left_out == members - len(ranks)
    lines = plain_lines(waiting_lines(graph, 80))
    assert max(map(len, lines)) <= 80 and len(lines) < 30
    assert any(f"{graph.left_out:,} more ranks" in line for line in lines)
    assert sum("step 20 " in line for line in lines) == 1


def test_text_and_picture_name_the_late_step(network_of_fault: Make) -> None:
    incident = network_of_fault("INCAST")
    graph = waiting_graph(incident, find_collective(incident))
    worst = graph.worst
    assert worst is not None
    (line,) = (
        line for line in chain_lines(graph, 100) if line.split()[1:3] == ["step", f"{worst.step}"]
    )
    assert f"{worst.src}→{worst.dst} ({worst.src_node}→{worst.dst_node})" in line
    assert line.startswith("▶") and "over expected" in line
    text = "\n".join(plain_lines(waiting_lines(graph, 80)))
    assert "?" not in to_ascii(text) and max(map(len, text.splitlines())) <= 80
    svg = waiting_svg(graph)
    assert svg.count('fill="url(#beyond)"') >= 2 and "over expected" in svg
    assert svg.count('marker-end="url(#ink)"') == len(list(graph.arrows()))


def test_what_is_not_there_is_said(network_of_fault: Make) -> None:
    incident = network_of_fault("INCAST")
    with pytest.raises(UsageError, match="no steps recorded for collective 99"):
        find_collective(incident, seq=99)
    with Incident.empty() as empty, pytest.raises(UsageError, match="no steps of collectives"):
        find_collective(empty)
