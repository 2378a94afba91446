"""The provenance graph of a late step as an SVG: its ports on one row, the flows on another."""

from __future__ import annotations

from collections.abc import Iterator

from oncall.core.units import format_duration, format_number
from oncall.render.svg import document as picture
from oncall.render.svg.document import BLUE, GREY, INK, LINE, ORANGE, PALE, RED
from oncall.render.text.provenance import ROOT_KINDS, left_out_phrase, thousands, title
from oncall.views.network.provenance import FlowNode, PortNode, Provenance

_WIDTH, _MARGIN, _PORTS, _HIGH = 1000.0, 20.0, 100.0, 66.0
_BETWEEN = 190.0  # from ports to flows
_FLOW = 34.0
_THICKEST = 14.0
_LEAST = 0.02  # of a port's queue; thinner lines would only hide others


def provenance_svg(graph: Provenance) -> str:
    """Ports from the victim's to the root's; a line to a flow is as thick as its part of the
    queue, one from the late step's own flow as what it met there."""
    ports = {port.label: place for place, port in enumerate(graph.ports)}
    shown = sorted(graph.flows, key=lambda flow: _middle(graph, flow, ports))
    flows = {flow.flow: place for place, flow in enumerate(shown)}
    body = [picture.text(16, 28, title(graph), size=17, bold=True), *_legend(graph)]
    body += _flow_lines(graph, ports, flows)
    body += _port_lines(graph, ports)
    for place, port in enumerate(graph.ports):
        body += _port(port, _slot(place, len(ports)), _wide(len(ports)))
    for place, flow in enumerate(shown):
        body += _flow(flow, _slot(place, len(flows)), _wide(len(flows)))
    height = _PORTS + _HIGH + (_BETWEEN + _FLOW if flows else 0) + 40
    if left_out := left_out_phrase(graph):
        body.append(picture.text(16, height - 10, left_out, size=12, colour=GREY))
    return picture.network_document(_WIDTH, height, title(graph), body)


def _middle(graph: Provenance, flow: FlowNode, ports: dict[str, int]) -> float:
    """Where a flow stands among ports, by what it fills of each: fewer lines cross so."""
    edges = [edge for edge in graph.flow_edges if edge.flow == flow.flow]
    total = sum(edge.fills for edge in edges)
    return sum(ports[edge.port] * edge.fills for edge in edges) / total if total else 0.0


def _slot(place: int, count: int) -> float:
    return _MARGIN + (_WIDTH - 2 * _MARGIN) * (place + 0.5) / max(count, 1)


def _wide(count: int) -> float:
    return min((_WIDTH - 2 * _MARGIN) / max(count, 1) - 26, 170)


def _port(port: PortNode, x: float, wide: float) -> Iterator[str]:
    edge = RED if port.root else INK
    why = ROOT_KINDS.get(port.root or "", "")
    yield picture.box(x - wide / 2, _PORTS, wide, _HIGH, fill=PALE, edge=edge,
                      thick=3 if port.root else 1, round_px=4, hint=why)  # fmt: skip
    lines = [(port.label, True, edge)]
    if port.paused_ns:
        lines.append((f"paused {format_duration(port.paused_ns)}", False, INK))
    if port.depth and port.depth >= 1:
        lines.append((f"queue of {format_number(round(port.depth))}", False, INK))
    for number, (phrase, bold, colour) in enumerate(lines):
        size = 13 if bold else 11
        yield picture.text(x, _PORTS + 20 + 18 * number, phrase, size=size, bold=bold,
                           colour=colour, anchor="middle")  # fmt: skip


def _flow(flow: FlowNode, x: float, wide: float) -> Iterator[str]:
    y = _PORTS + _HIGH + _BETWEEN
    fill = BLUE if flow.own else "#a6cbe3" if flow.member else ORANGE
    wide = max(wide, 60)
    yield picture.box(x - wide / 2, y, wide, _FLOW, fill=fill, edge=INK, round_px=16,
                      hint=flow.name)  # fmt: skip
    ink = "white" if flow.own else INK
    size = max(min(12, int((wide - 10) / max(len(flow.name), 1) / 0.6)), 6)
    yield picture.text(x, y + 21, flow.name, size=size, colour=ink, anchor="middle", bold=flow.own)
    if flow.share is not None:
        phrase = f"{flow.share:.0%} of the delay".replace("%", " %")
        yield picture.text(x, y + _FLOW + 14, phrase, size=11, colour=GREY, anchor="middle")


def _port_lines(graph: Provenance, ports: dict[str, int]) -> Iterator[str]:
    """From a stopped port to the one it waited for; one over others as an arc."""
    for edge in graph.port_edges:
        here, there = ports[edge.port], ports[edge.after]
        half = _wide(len(ports)) / 2
        x1, x2 = _slot(here, len(ports)), _slot(there, len(ports))
        phrase = "" if edge.weight is None else f"{edge.weight:.2f}"
        y = _PORTS + _HIGH / 2
        if there == here + 1:
            yield picture.line(x1 + half, y, x2 - half - 2, y, colour=RED, thick=2.5, head="red")
            yield picture.text((x1 + x2) / 2, y - 8, phrase, size=10, colour=RED, anchor="middle")
            continue
        top = _PORTS - 16 - 6 * min(abs(there - here), 4)
        yield (
            f'<path d="M {x1:.1f} {_PORTS:.1f} Q {(x1 + x2) / 2:.1f} {top:.1f} {x2:.1f} '
            f'{_PORTS - 2:.1f}" fill="none" stroke="{RED}" stroke-width="2" '
            'marker-end="url(#red)"/>'
        )
        yield picture.text((x1 + x2) / 2, top + 6, phrase, size=10, colour=RED, anchor="middle")


def _flow_lines(graph: Provenance, ports: dict[str, int], flows: dict[int, int]) -> Iterator[str]:
    """From ports to the flows that fill them, the own flow's the other way."""
    y1, y2 = _PORTS + _HIGH, _PORTS + _HIGH + _BETWEEN
    for edge in sorted(graph.flow_edges, key=lambda one: graph.flow(one.flow).own):
        total = sum(other.fills for other in graph.at(edge.port))
        share = edge.fills / total if total else 0.0
        flow = graph.flow(edge.flow)
        if share < _LEAST and not flow.own:
            continue
        x1, x2 = _slot(ports[edge.port], len(ports)), _slot(flows[edge.flow], len(flows))
        thick = max(_THICKEST * share, 1.0)
        hint = f"{flow.name} at {edge.port}: {share:.0%}, {thousands(edge.fills)} packets ahead"
        if flow.own:
            hint = f"{flow.name} queued behind {thousands(edge.waits)} packets at {edge.port}"
            yield picture.line(x2, y2, x1, y1 + 2, colour=BLUE, thick=max(thick, 2), hint=hint)
        else:
            colour = LINE if flow.member else "#f0c674"
            yield picture.line(x1, y1, x2, y2, colour=colour, thick=thick, hint=hint)


def _legend(graph: Provenance) -> Iterator[str]:
    x = 16.0
    for means, fill, there in (
        ("flow of the late step", BLUE, any(flow.own for flow in graph.flows)),
        ("other flows", ORANGE, any(not flow.member for flow in graph.flows)),
        ("flows of the collective", "#a6cbe3", any(f.member and not f.own for f in graph.flows)),
    ):
        if there:
            yield picture.box(x, 46, 16, 14, fill=fill, edge=INK, round_px=7)
            yield picture.text(x + 22, 57, means, size=12, colour=GREY)
            x += 40 + 7 * len(means)
    if graph.port_edges:
        yield picture.line(x, 53, x + 22, 53, colour=RED, thick=2.5, head="red")
        means = "waits for (share of that port's traffic)"
        yield picture.text(x + 28, 57, means, size=12, colour=GREY)
