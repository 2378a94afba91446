"""The provenance graph: which flow waits for which port, and which flows and ports it waits for.

Built for each late step over the epochs that its time touches. Weights are packets: of those that
a flow's packets met in a queue, each other flow has the share it has of the port's packets in that
epoch, as flows that share a queue interleave (the paper replays each packet, which takes more than
reports).
"""

from __future__ import annotations

from oncall.evidence import relation


@relation(
    "provenance_edges",
    reads=["late_steps"],
    optional=["step_ports", "step_flows", "pause_edges"],
    empty_without=["late_steps", "step_ports"],
    columns=[
        ("id", "INTEGER", "", "the late step"),
        ("kind", "VARCHAR", "", "flow_port, port_flow or port_port"),
        ("flow", "BIGINT", "", "the flow of e(f, p) and e(p, f)"),
        ("switch", "VARCHAR", "", "device of the port; of e(p, p): of the port that waits"),
        ("port", "INTEGER", "", "the port"),
        ("next_switch", "VARCHAR", "", "of e(p, p): device of the port waited for"),
        ("next_port", "INTEGER", "", "and that port"),
        ("weight", "DOUBLE", "packets", "w(f, p), w(p, f) or the traffic ratio w(p, p)"),
        ("member", "BOOLEAN", "", "the flow is the collective's"),
    ],
    source="Vedrfolnir III-D1",
)
def provenance_edges() -> str:
    """e(f, p), e(p, f) and e(p, p) of each late step, with the paper's weights."""
    return """
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
        UNION ALL
        SELECT id, 'port_port', NULL, switch, port, next_switch, next_port, weight, NULL
        FROM pause_edges
    """
