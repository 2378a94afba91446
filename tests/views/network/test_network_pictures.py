"""The way of pauses over the topology, and the provenance graph, of faults that are known."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Callable

import pytest

from oncall.analysis.network.network_paths import network_of
from oncall.core.printable import to_ascii
from oncall.evidence.incident import Incident
from oncall.render.svg.provenance import provenance_svg
from oncall.render.svg.topology import topology_svg
from oncall.render.text.drawings import drawings_of
from oncall.render.text.lines import plain_lines
from oncall.render.text.provenance import provenance_lines
from oncall.render.text.topology import topology_lines
from oncall.rules.language.load import load_file, shipped_folder
from oncall.use_case.diagnose import diagnose
from oncall.views.network.provenance import (
    PortEdge,
    Provenance,
    provenance,
    reached,
    why_unseen,
)
from oncall.views.network.topology import Topology, topology
from oncall.views.network.waiting import find_collective, waiting_graph

Make = Callable[[str], Incident]
Ring = Callable[[int, int, tuple[int, int], int], Incident]


def read(incident: Incident) -> tuple[Topology, Provenance]:
    collective = find_collective(incident)
    step = waiting_graph(incident, collective).worst
    assert step is not None and why_unseen(incident, collective, step) is None
    net = network_of(incident.con)
    found = topology(incident, net, collective, step)
    graph = provenance(incident, net, collective, step)
    assert found is not None and graph is not None
    return found, graph


def test_an_incast_is_followed_to_the_receivers_port(network_of_fault: Make) -> None:
    found, graph = read(network_of_fault("INCAST"))
    root = found.root
    assert root is not None and root.kind == "contention" and root.host is not None
    assert [hop.is_root for hop in root.hops] == [False] * (len(root.hops) - 1) + [True]
    assert all(hop.paused_ns for hop in root.hops[:-1])
    assert [device.name for tier in found.tiers for device in tier if device.role == "root"] == [
        root.label.rpartition("P")[0]
    ]
    # Each arrow goes from who stopped to who had to stop.
    stopped = {(cable.a, cable.b) for cable in found.cables if cable.paused}
    assert stopped == {(hop.device, hop.towards) for hop in root.hops[:-1]}
    last = graph.ports[-1]
    assert last.label == root.label and last.root == "contention"
    edges = graph.at(last.label)
    assert edges[0].fills == max(edge.fills for edge in edges)
    assert {graph.flow(edge.flow).name.rpartition(">")[2] for edge in edges} == {
        root.host.removeprefix("host")
    }
    lines = plain_lines(provenance_lines(graph, 80))
    assert sum(line.startswith(f"▶ {root.label}") for line in lines) == 1
    assert sum("(this step)" in line for line in lines) >= 1


def test_a_storm_is_drawn_from_the_port_that_sends_pauses(network_of_fault: Make) -> None:
    found, graph = read(network_of_fault("PFC_STORM"))
    root = found.root
    assert root is not None and root.kind == "storm"
    text = "\n".join(plain_lines(topology_lines(found, 80)))
    assert f"▶ {root.label}" in text and "sends PFC pauses without a queue" in text
    assert not any(cable.paused and cable.a == root.hops[-1].device for cable in found.cables)
    assert [port.root for port in graph.ports if port.root] == ["storm"]
    (edge,) = (edge for edge in graph.port_edges if edge.after == root.label)
    assert edge.weight is None


@pytest.mark.parametrize("kind", ["INCAST", "PFC_STORM", "PFC_LOOP_DEADLOCK"])
@pytest.mark.parametrize("width", [80, 130])
def test_pictures_fit_and_hold_all_that_has_a_role(
    network_of_fault: Make, kind: str, width: int
) -> None:
    found, graph = read(network_of_fault(kind))
    for lines in (
        plain_lines(topology_lines(found, width)),
        plain_lines(provenance_lines(graph, width)),
    ):
        assert max(map(len, lines)) <= width and "?" not in to_ascii("\n".join(lines))
    text = "\n".join(plain_lines(topology_lines(found, width)))
    marked = [
        device for tier in found.tiers for device in tier if device.role in ("root", "victim")
    ]
    assert len(marked) == 2
    for device in marked:
        sides = "[]" if device.role == "root" else "<>"
        assert f"{sides[0]}{device.name}{sides[1]}" in text
    for svg in (topology_svg(found), provenance_svg(graph)):
        ElementTree.fromstring(svg)


def test_ports_come_before_those_they_wait_for() -> None:
    edges = [
        PortEdge("c", "d", 1),
        PortEdge("a", "c", 1),
        PortEdge("a", "b", 1),
        PortEdge("b", "d", 1),
    ]
    order = reached(["a"], edges)
    assert set(order) == set("abcd")
    assert all(order.index(edge.port) < order.index(edge.after) for edge in edges)
    assert set(reached(["x"], [PortEdge("x", "y", 1), PortEdge("y", "x", 1)])) == {"x", "y"}


def test_a_finding_of_the_network_is_explained_with_pictures(network_of_fault: Make) -> None:
    incident = network_of_fault("INCAST")
    books = [load_file(shipped_folder() / "congestion.yaml")]
    diagnosis = diagnose(incident, books)
    drawn = drawings_of(incident, diagnosis)
    (lines,) = drawn.values()
    assert any(line.startswith("▶ rank") for line in lines)
    assert any(line.startswith("tier 1") for line in lines)
    assert max(map(len, lines)) <= 76


def test_without_switches_it_is_said_what_would_decide(ring_of: Ring) -> None:
    with ring_of(8, 7, (3, 4), 5_000_000) as incident:
        collective = find_collective(incident)
        step = waiting_graph(incident, collective).worst
        assert step is not None
        assert why_unseen(incident, collective, step) == (
            "no switch or NIC data from this time; switch data would show what delayed this step"
        )


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("FORWARDING_LOOP", "is in a forwarding loop there"),
        ("LOAD_IMBALANCE", "also leads there"),
    ],
)
def test_what_else_is_seen_at_the_root_is_said(
    network_of_fault: Make, kind: str, says: str
) -> None:
    found, _ = read(network_of_fault(kind))
    assert any(says in note for note in found.notes)
    assert any(says in line for line in plain_lines(topology_lines(found, 100)))
    assert says in topology_svg(found)
    assert not read(network_of_fault("INCAST"))[0].notes
