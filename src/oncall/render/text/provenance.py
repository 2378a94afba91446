"""The provenance graph of a late step as lines of text."""

from __future__ import annotations

from collections.abc import Iterator

from oncall.core.units import format_duration, format_number
from oncall.render.text.lines import Line, Span, line, wrapped_line
from oncall.views.network.provenance import PortNode, Provenance
from oncall.views.words import percent

_BAR = 20
_MEMBER = "(collective)"
ROOT_KINDS = {
    "contention": "flows contend here",
    "backpressure": "its full queue pauses the ports that feed it",
    "storm": "sends PFC pauses without a queue",
    "deadlock": "in a cycle of ports that pause each other",
    "overrun": "steps of the collective collide here",
}


def provenance_lines(graph: Provenance, width: int = 80) -> list[Line]:
    """Each port of the way with its queue and pauses, the ports it waited for, and the flows that
    fill it."""
    lines = wrapped_line(line(title(graph)), width)
    for place, port in enumerate(graph.ports):
        port_line = line(port_phrase(graph, port), "fault" if port.root else "text")
        lines += wrapped_line(port_line, width)
        lines += _flow_lines(graph, port, width)
        after = [edge.after for edge in graph.after(port.label)]
        if place + 1 < len(graph.ports) and graph.ports[place + 1].label in after:
            lines.append(line("    ↓"))
    lines += [part for text in notes(graph) for part in wrapped_line(line(text), width)]
    return lines


def title(graph: Provenance) -> str:
    """Which step it is of."""
    step = graph.step
    return (
        f"Ports that delayed step {step.step} from rank {step.src} to {step.dst} "
        f"({format_duration(step.excess_ns)} over expected)"
    )


def port_phrase(graph: Provenance, port: PortNode) -> str:
    """`SW5P2  paused 2.45 ms, waits for SW1P1 (0.34)`."""
    mark = "▶" if port.root else " "
    wide = max(len(one.label) for one in graph.ports)
    parts = []
    if port.paused_ns:
        parts.append(f"paused {format_duration(port.paused_ns)}")
    if port.depth and port.depth >= 1:
        parts.append(f"queue of {format_number(round(port.depth))} packets")
    waits = [
        edge.after if edge.weight is None else f"{edge.after} ({percent(edge.weight)})"
        for edge in graph.after(port.label)
    ]
    if waits:
        parts.append(f"waits for {', '.join(waits)}")
    if port.root:
        host = f" to {port.host}" if port.host else ""
        parts.append(f"{ROOT_KINDS.get(port.root, port.root)}{host}")
    return f"{mark} {port.label:<{wide}}  {', '.join(parts) or 'no data'}"


def _flow_lines(graph: Provenance, port: PortNode, width: int) -> Iterator[Line]:
    """The flows at a port, with their part of its queue as a bar."""
    edges = [edge for edge in graph.at(port.label) if edge.fills > 0]
    total = sum(edge.fills for edge in edges)
    names = {one.flow: flow_name(graph, one.flow) for one in graph.flows}
    wide = min(max((len(names[edge.flow]) for edge in edges), default=0), 30)
    for edge in edges if port.depth and port.depth >= 1 else ():
        share = edge.fills / total
        bar = "█" * max(round(share * _BAR), 1 if share > 0.02 else 0)
        name, member = names[edge.flow][:wide], ""
        if name.endswith(_MEMBER):
            name, member = name.removesuffix(_MEMBER), _MEMBER
        rest = " " * (wide - len(name + member)) + f"  {bar:<{_BAR}} {share:4.0%}".replace(
            "%", " %"
        )
        rest += f"  {thousands(edge.fills)} packets"
        spans = (Span(f"      {name}"), Span(member, "member"), Span(rest))
        yield Line(spans).first(width)


def flow_name(graph: Provenance, number: int) -> str:
    """A flow's name, and that it is the collective's."""
    flow = graph.flow(number)
    return f"{flow.name}{' (this step)' if flow.own else f' {_MEMBER}' if flow.member else ''}"


def thousands(count: float) -> str:
    """`842 797.8` as `843k`."""
    for least, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= least:
            return f"{count / least:.3g}{unit}"
    return f"{count:.3g}"


def notes(graph: Provenance) -> Iterator[str]:
    """What is left out, and what the numbers are."""
    if any(edge.weight is not None for edge in graph.port_edges):
        yield "in brackets: share of the traffic into that port that came from here"
    if any(graph.at(port.label) for port in graph.ports):
        yield "packets: packets of the flow that others queued behind, summed over the others"
    if left_out := left_out_phrase(graph):
        yield left_out


def left_out_phrase(graph: Provenance) -> str:
    """`not shown: 3 ports and 12 flows that matter less`; empty if all are drawn."""
    parts = [f"{graph.ports_left_out:,} ports"] * bool(graph.ports_left_out)
    parts += [f"{graph.flows_left_out:,} flows"] * bool(graph.flows_left_out)
    return f"not shown: {' and '.join(parts)} that matter less" if parts else ""
