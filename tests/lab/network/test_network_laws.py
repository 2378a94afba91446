"""Laws of any network: bytes are conserved, pauses obeyed, buffers kept, messages in order."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncall.analysis.network.network_paths import network_of
from oncall.evidence.incident import Incident
from oncall_lab.network import NetworkScenario, simulate_network
from oncall_lab.network.collective import NONE, Progress, messages_of
from oncall_lab.network.congestion import LEAST, Rates
from oncall_lab.network.queues import Queues, legs_of
from oncall_lab.network.routing import balanced, hashed, meetings, ways
from oncall_lab.network.topology import FatTree

TREE = FatTree(4)
PORTS = len(TREE.device_of)
QUANTUM, XOFF, XON = 50.0, 400.0, 200.0

hosts = st.integers(0, TREE.hosts - 1)
pairs = st.tuples(hosts, hosts).filter(lambda pair: pair[0] != pair[1])


@st.composite
def flows(draw: st.DrawFn) -> list[tuple[int, ...]]:
    """Ways of some flows."""
    ends = draw(st.lists(st.tuples(pairs, st.integers(0, 99)), min_size=1, max_size=8))
    return [hashed(TREE, *pair, port) for pair, port in ends]


@settings(max_examples=40)
@given(flows(), st.lists(st.sets(st.integers(0, PORTS - 1), max_size=4), max_size=60), st.data())
def test_laws_of_queues(
    paths: list[tuple[int, ...]], storms: list[set[int]], data: st.DataObject
) -> None:
    queues = Queues(legs_of(paths), np.full(PORTS, QUANTUM), XOFF, XON)
    sent, came = np.zeros(len(paths)), np.zeros(len(paths))
    # Any switch has as many links as may each be full, and what was under way when it paused them.
    for forced in [*storms, *[set[int]()] * 20]:
        must_not = queues.paused.copy()
        pause = np.zeros(PORTS, np.bool_)
        pause[list(forced)] = True
        out, arrived = queues.advance(np.full(len(paths), data.draw(st.floats(0, QUANTUM))), pause)
        sent, came = sent + out, came + arrived
        served = np.bincount(queues.legs.port, queues.served, PORTS)
        assert (served <= QUANTUM + 1e-6).all(), "no port is faster than its link"
        assert (served[must_not] == 0).all(), "a paused port sends nothing"
        assert (queues.queued >= -1e-9).all()
        inside = np.bincount(queues.legs.flow, queues.queued + queues.arriving, len(paths))
        assert sent == pytest.approx(came + inside), "nothing is lost and nothing made"
        assert (queues.held() <= XOFF + 2 * QUANTUM + 1e-6).all(), "no buffer overflows"
        assert queues.paused[pause].all()


@given(pairs)
def test_ways_are_all_shortest_ways(pair: tuple[int, int]) -> None:
    found = ways(TREE, *pair)
    assert len(set(found)) == len(found) == {2: 1, 4: 2, 6: 4}[len(found[0])]
    for way in found:
        assert TREE.device_of[way[0]] == pair[0]
        assert TREE.towards[way[-1]] == pair[1]
        assert (TREE.towards[list(way[:-1])] == TREE.device_of[list(way[1:])]).all()


def test_the_topology_is_that_of_its_links() -> None:
    incident, _ = simulate_network(NetworkScenario(step_bytes=10**6))
    with incident:
        net = network_of(incident.con)
    assert len(net.hosts) == TREE.hosts
    assert len(net.ports) == PORTS
    away = net.distances[:, net.hosts]
    assert int(away.max()) == 6, "any host is six links from any other, or less"


@pytest.mark.parametrize("members", [4, 7, 8])
def test_a_packed_ring_can_be_routed_without_meeting(members: int) -> None:
    messages = messages_of("RING", "AllGather", members, 10**6)
    steps = [messages.steps_of(flow) for flow in range(len(messages.pairs))]
    ends = [(*pair, when) for pair, when in zip(messages.pairs, steps, strict=True)]
    assert not meetings(balanced(TREE, ends, np.random.default_rng(1)), steps)


@given(
    st.sampled_from(
        [("RING", "AllReduce"), ("RING", "AllGather"), ("HALVING_DOUBLING", "AllReduce")]
    ),
    st.sampled_from([2, 4, 8]),
    st.lists(st.floats(1, 100), min_size=14 * 8, max_size=14 * 8),
)
def test_no_message_begins_before_what_it_needs_has_come(
    kind: tuple[str, str], members: int, took: list[float]
) -> None:
    messages = messages_of(*kind, members, 10**6)
    progress = Progress(messages, np.zeros(members), np.zeros(len(messages)))
    now, flying = 0.0, dict[int, float]()
    while not progress.over:
        flying |= {message: now + took[message] for message in progress.due(now)}
        message = min(flying, key=lambda one: flying[one])
        now = flying.pop(message)
        progress.end(message, now)
    for message, needs in enumerate(messages.needs.tolist()):
        for need in (need for need in needs if need != NONE):
            assert progress.started_ns[message] >= progress.ended_ns[need]


@given(st.lists(st.booleans(), max_size=200))
def test_rates_stay_between_the_least_and_the_line(marks: list[bool]) -> None:
    rates = Rates(np.array([True, False]))
    for mark in marks:
        rates.adapt(np.array([mark, True]))
        assert LEAST <= rates.share[0] <= 1
    assert rates.share[1] == 1, "who heeds no marks keeps to line rate"
    for _ in range(400):
        rates.adapt(np.array([False, False]))
    assert rates.share[0] > 0.9, "and without marks a rate recovers"


def test_a_healthy_collective_takes_the_time_of_its_bytes() -> None:
    scenario = NetworkScenario(step_bytes=20_000_000, innocent=3)
    incident, truth = simulate_network(scenario)
    assert truth.healthy
    with incident:
        ((took, steps),) = incident.con.execute(
            "SELECT max(ended_ns) - min(started_ns), max(step) FROM flow_steps"
        ).fetchall()
    alone = steps * scenario.step_bytes / scenario.network_bytes_per_s * 1e9
    assert alone < took < 1.06 * alone


def test_equal_scenarios_give_equal_rows() -> None:
    scenario = NetworkScenario(step_bytes=5_000_000, innocent=2)

    def rows(scenario: NetworkScenario) -> list[object]:
        incident, _ = simulate_network(scenario)
        with incident:
            return [
                incident.con.execute(f"FROM {table}").fetchall()
                for table in ("flow_steps", "switch_ports", "switch_flows", "flows")
            ]

    assert rows(scenario) == rows(scenario)
    assert rows(scenario) != rows(dataclasses.replace(scenario, seed=1))


def test_what_switches_count_is_what_was_sent() -> None:
    scenario = NetworkScenario(step_bytes=5_000_000)
    incident, _ = simulate_network(scenario)
    assert isinstance(incident, Incident)
    with incident:
        ((metered, sent),) = incident.con.execute(
            """WITH ends AS (SELECT b AS switch, b_port AS port FROM links WHERE a LIKE 'host%')
            SELECT (SELECT sum(m.bytes) FROM switch_meters m JOIN ends e
                    ON e.switch = m.switch AND e.port = m.to_port),
                (SELECT sum(bytes) FROM flow_steps)"""
        ).fetchall()
    assert metered == pytest.approx(sent, rel=1e-3)
