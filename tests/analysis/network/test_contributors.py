"""Equation 1 by hand."""

from __future__ import annotations

from oncall.analysis.network.contributors import port_scores

P1, P2, P3 = ("S1", 1), ("S2", 1), ("S3", 1)


def test_a_flow_counts_at_its_port_and_at_those_that_wait_for_it() -> None:
    scores = port_scores({P1: {1: 10.0}, P2: {1: 40.0, 2: 60.0}}, {P1: {P2: 0.25}})
    assert scores[P2] == {1: 40.0, 2: 60.0}
    assert scores[P1] == {1: 20.0, 2: 15.0}


def test_contributions_come_from_every_way_the_pauses_spread() -> None:
    scores = port_scores({P2: {1: 40.0}, P3: {1: 8.0}}, {P1: {P2: 0.5, P3: 1.0}})
    assert scores[P1] == {1: 28.0}


def test_ports_in_a_cycle_end() -> None:
    scores = port_scores({P1: {1: 1.0}, P2: {1: 2.0}}, {P1: {P2: 1.0}, P2: {P1: 1.0, P3: 1.0}})
    assert scores[P1] == {1: 1.0}
