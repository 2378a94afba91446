"""What `oncall probe` found, as text at 80 columns and as JSON: the worst first."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict

from oncall.core.nodeset import fold_hosts
from oncall.core.printable import clean
from oncall.core.units import format_duration, format_rate
from oncall.fleet.outcome import REASONS, Outcome
from oncall.fleet.probe import Probed
from oncall.render.text.checkup import flow
from oncall.views.probe import Node, Pair, ProbeSummary, Stream

_MOST_PAIRS = 8
_MOST_NODES = 12
_MOST_MATRIX = 8
_ABBREVIATED = 10  # characters of a node's name at the head of a column


def to_text(probed: Probed, summary: ProbeSummary) -> str:
    """Nodes, worst pairs, a matrix of a small fleet, bandwidth, and what is missing."""
    sections = [
        list(flow(_head(summary), "  ")),
        list(_nodes(summary)),
        list(_worst(summary)),
        list(_matrix(summary)),
        list(_streams(summary)),
        list(_missing(probed)),
    ]
    return "\n\n".join("\n".join(section) for section in sections if section) + "\n"


def to_json(probed: Probed, summary: ProbeSummary) -> str:
    fields = asdict(summary) | {
        "hosts": [
            {"host": host, "node": each.node, "outcome": each.kind, "message": each.message}
            for host, each in probed.outcomes.items()
        ],
        "odd": dict(probed.odd),
        "without_rdma": dict(probed.without_rdma),
        "sampled": probed.sampled,
    }
    return json.dumps({"schema": 1} | fields, indent=2) + "\n"


def _head(summary: ProbeSummary) -> str:
    pings = sum(pair.pings for pair in summary.pairs)
    lost = sum(pair.lost for pair in summary.pairs)
    parts = [f"{len(summary.nodes)} nodes · {pings:,} pings, {lost:,} lost"]
    for kind, name in (("network", "network"), ("end_to_end", "end to end")):
        if kind in summary.fleet_ns:
            parts.append(f"{name} {format_duration(summary.fleet_ns[kind])}")
    if summary.clocks:
        # Measured by several clocks, what the coarser ones add is in the numbers.
        total = sum(summary.clocks.values())
        shares = [
            f"{clock} {count / total:.0%}" if len(summary.clocks) > 1 else clock
            for clock, count in summary.clocks.items()
        ]
        parts.append(f"stamped by {', '.join(shares)}")
    return " · ".join(parts)


def _nodes(summary: ProbeSummary) -> Iterator[str]:
    if not summary.nodes:
        return
    with_rdma = "end_to_end" in summary.fleet_ns
    rows = [
        ["node", "network", "× fleet", *(("end to end", "in hosts") if with_rdma else ()), "lost"]
    ]
    for node in summary.nodes[:_MOST_NODES]:
        rows.append(_node(node, with_rdma))
    yield from _table(rows)
    more = len(summary.nodes) - _MOST_NODES
    if more > 0:
        yield f"and {more} nodes closer to the median"


def _node(node: Node, with_rdma: bool) -> list[str]:
    rdma = [_time(node.end_to_end_ns), _time(node.internal_ns)] if with_rdma else []
    return [
        clean(node.node),
        _time(node.network_ns),
        _ratio(node.network_ratio),
        *rdma,
        _lost(node),
    ]


def _worst(summary: ProbeSummary) -> Iterator[str]:
    if not summary.pairs:
        return
    rows = [["worst pairs", "", "median", "× fleet", "worst", "lost"]]
    for pair in summary.pairs[:_MOST_PAIRS]:
        kind = "rdma" if pair.kind == "end_to_end" else "udp"
        worst = _time(pair.worst_ns)
        rows.append(
            [_way(pair), kind, _time(pair.median_ns), _ratio(pair.ratio), worst, _lost(pair)]
        )
    yield from _table(rows)
    more = len(summary.pairs) - _MOST_PAIRS
    if more > 0:
        yield f"and {more:,} better pairs"


def _matrix(summary: ProbeSummary) -> Iterator[str]:
    """Medians of network pings from each node (row) to each other (column), over its NICs."""
    names = sorted({node.node for node in summary.nodes})
    pinging = {pair.node for pair in summary.pairs}
    if pinging != set(names) or not 2 < len(names) <= _MOST_MATRIX:
        return
    cells: dict[tuple[str, str], list[float]] = defaultdict(list)
    for pair in summary.pairs:
        if pair.kind == "network" and pair.median_ns is not None:
            cells[pair.node, pair.target_node].append(pair.median_ns)
    rows = [["from \\ to", *(clean(name)[-_ABBREVIATED:] for name in names)]]
    for name in names:
        found = [cells.get((name, other)) for other in names]
        rows.append([clean(name), *(_time(max(each)) if each else "·" for each in found)])
    yield from _table(rows)


def _streams(summary: ProbeSummary) -> Iterator[str]:
    if not summary.streams:
        return
    rows = [["bandwidth, one TCP stream", ""]]
    for each in summary.streams[:_MOST_PAIRS]:
        rows.append([_way(each), format_rate(each.bytes_per_s)])
    yield from _table(rows)
    more = len(summary.streams) - _MOST_PAIRS
    if more > 0:
        yield f"and {more:,} faster"


def _way(one: Pair | Stream) -> str:
    """From where to where; a NIC that both ends call the same is named once."""
    if one.nic == one.target_nic:
        return clean(f"{one.node} → {one.target_node} {one.nic}")
    return clean(f"{one.node} {one.nic} → {one.target_node} {one.target_nic}")


def _missing(probed: Probed) -> Iterator[str]:
    """Who was not probed, what was odd, and what could not be measured."""
    if probed.sampled:
        yield from flow("Each node pinged a random sample of the others, not all.", "  ")
    for hosts, outcome in _failed(probed.outcomes):
        reason = REASONS[outcome.kind] + (f": {outcome.message}" if outcome.message else "")
        yield from flow(clean(f"✖ {fold_hosts(hosts)} {reason}"), "    ")
    for host, sentences in probed.odd.items():
        for sentence in dict.fromkeys(sentences):
            yield from flow(clean(f"▲ {host}: {sentence}"), "    ")
    for reason, without in probed.without_rdma.items():
        text = f"· {fold_hosts(without)}: no RDMA pings, so latency within hosts is unknown: "
        yield from flow(clean(text + reason), "    ")


def _failed(outcomes: Mapping[str, Outcome]) -> list[tuple[list[str], Outcome]]:
    groups: dict[tuple[str, str], list[Outcome]] = defaultdict(list)
    for outcome in outcomes.values():
        if outcome.kind != "ok":
            groups[outcome.kind, outcome.message].append(outcome)
    return [([each.host for each in group], group[0]) for group in groups.values()]


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Columns as wide as they must be, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
        yield "  ".join([row[0].ljust(widths[0]), *cells[1:]]).rstrip()


def _time(duration_ns: float | None) -> str:
    return "·" if duration_ns is None else format_duration(duration_ns)


def _ratio(ratio: float | None) -> str:
    return "·" if ratio is None else f"{ratio:.2f}"


def _lost(one: Pair | Node) -> str:
    return f"{one.lost / one.pings:.0%}" if one.lost else "0"
