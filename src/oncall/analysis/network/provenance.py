"""The provenance graph: which flow waits for which port, and which flows and ports it waits for.

Built for each late step over the epochs that its time touches. Weights are packets: of those that
a flow's packets met in a queue, each other flow has the share it has of the port's packets in that
epoch, as flows that share a queue interleave (the paper replays each packet, which takes more than
reports). Which port waited for which follows from how pauses spread.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import duckdb

from oncall.analysis.network.network_paths import Network, network_of
from oncall.analysis.network.pause_paths import queues_behind, spreading
from oncall.analysis.network.step_views import INPUTS, Thresholds, views
from oncall.evidence import params_of, relation

_COLUMNS = [
    ("id", "INTEGER", "", "the late step"),
    ("kind", "VARCHAR", "", "flow_port, port_flow or port_port"),
    ("flow", "BIGINT", "", "the flow of e(f, p) and e(p, f)"),
    ("switch", "VARCHAR", "", "device of the port; of e(p, p): of the port that waits"),
    ("port", "INTEGER", "", "the port"),
    ("next_switch", "VARCHAR", "", "of e(p, p): device of the port waited for"),
    ("next_port", "INTEGER", "", "and that port"),
    ("weight", "DOUBLE", "packets", "w(f, p), w(p, f) or the traffic ratio w(p, p)"),
    ("member", "BOOLEAN", "", "the flow is the collective's"),
]


@relation(
    "provenance_edges",
    reads=["late_steps"],
    optional=INPUTS,
    empty_without=["late_steps", "step_ports"],
    columns=_COLUMNS,
    source="Vedrfolnir III-D1",
    params=params_of(Thresholds, of="network_roots"),
)
def provenance_edges(con: duckdb.DuckDBPyConnection, **params: Any) -> Mapping[str, Any]:
    """e(f, p), e(p, f) and e(p, p) of each late step, with the paper's weights."""
    rows = [*con.execute(_OF_FLOWS).fetchall(), *_of_pauses(con, Thresholds(**params))]
    return {column[0]: [row[i] for row in rows] for i, column in enumerate(_COLUMNS)}


_OF_FLOWS = """
    WITH ports AS (
        SELECT id, switch, port, sum(packets) AS packets FROM step_flows GROUP BY ALL),
    queues AS (SELECT id, switch, port, queued, packets FROM step_ports WHERE packets > 0)
    SELECT f.id, 'flow_port' AS kind, f.flow, f.switch, f.port, NULL AS next_switch,
        NULL AS next_port, f.queued * (1 - f.packets / p.packets) AS weight, f.member
    FROM step_flows f JOIN ports p USING (id, switch, port)
    UNION ALL
    SELECT f.id, 'port_flow', f.flow, f.switch, f.port, NULL, NULL,
        coalesce(f.part, f.packets / q.packets * q.queued), f.member
    FROM step_flows f JOIN queues q USING (id, switch, port)
"""


def _of_pauses(con: duckdb.DuckDBPyConnection, thresholds: Thresholds) -> Iterator[tuple[Any, ...]]:
    """Which port waited for which, as pauses spread; weighted by traffic where that was metered."""
    net = network_of(con)
    meters = _meters(con, net)
    for step, view in views(con, net, thresholds):
        edges = {
            port: nexts + [q for q in queues_behind(view, net, port) if q not in nexts]
            for port, nexts in spreading(view, net).items()
        }
        into: dict[int, list[int]] = defaultdict(list)
        for port, nexts in edges.items():
            for after in nexts:
                into[after].append(port)
        for port, nexts in edges.items():
            for after in nexts:
                ends = (*net.ports[port], *net.ports[after])
                weight = _traffic_ratio(meters, net, port, into[after], after)
                yield (step[0], "port_port", None, *ends, weight, None)


def _traffic_ratio(
    meters: Mapping[tuple[int, int], float], net: Network, port: int, feeding: list[int], after: int
) -> float:
    """Of what all stopped ports send into `after`, the part of `port`.

    Switches meter what they were asked for: who was not metered counts as the mean of the others.
    """
    metered = {p: meters.get((int(net.back[p]), after)) for p in feeding}
    known = [sent for sent in metered.values() if sent is not None]
    if not sum(known):
        return 1 / len(feeding)
    mean = sum(known) / len(known)
    sent = {p: mean if flow is None else flow for p, flow in metered.items()}
    return sent[port] / sum(sent.values())


def _meters(con: duckdb.DuckDBPyConnection, net: Network) -> dict[tuple[int, int], float]:
    rows = con.execute(
        "SELECT switch, from_port, to_port, sum(bytes) FROM switch_meters GROUP BY ALL"
    ).fetchall()
    return {
        (net.number[s, a], net.number[s, b]): float(n or 0)
        for s, a, b, n in rows
        if (s, a) in net.number and (s, b) in net.number
    }
