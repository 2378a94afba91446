"""Flows that leave one host together: they meet on its own link, before any switch can tell.

What a switch shows is that the sender's flows together come at the rate which the step would have
alone: then its link was full, and what the others sent, the step could not.
"""

from __future__ import annotations

from oncall.evidence import relation

FULL = 0.9  # of the rate that the step has alone: together they came as fast as that


@relation(
    "sender_links",
    reads=["late_steps"],
    optional=["switch_flows", "flows", "links"],
    empty_without=["late_steps", "switch_flows", "flows", "links"],
    columns=[
        ("id", "INTEGER", "", "the late step"),
        ("switch", "VARCHAR", "", "its sender's host"),
        ("port", "INTEGER", "", "the host's port"),
        ("flow", "BIGINT", "", "a flow that leaves this host"),
        ("packets", "DOUBLE", "packets", "its packets, at the port that saw most of it"),
        ("own", "BOOLEAN", "", "it is the late step's flow"),
    ],
    source="Vedrfolnir III-D1, for a port that reports nothing",
)
def sender_links() -> str:
    """Each flow on the link of a late step's sender, where that link was full."""
    return f"""
        WITH ends AS (
            SELECT a AS host, a_port AS port FROM links UNION SELECT b, b_port FROM links),
        single AS (
            SELECT host, any_value(port) AS port FROM ends
            GROUP BY host HAVING count(*) = 1),
        leaving AS (
            SELECT s.id, h.host, h.port, p.flow, p.at_ns, max(p.packets) AS packets,
                p.flow = s.flow AS own
            FROM late_steps s JOIN single h ON h.host = s.src_host
            JOIN flows f ON f.src_host = h.host
            JOIN switch_flows p ON p.flow = f.flow
                AND p.at_ns > s.started_ns AND p.at_ns - coalesce(p.epoch_ns, 0) < s.ended_ns
            WHERE s.flow IS NOT NULL AND p.packets > 0
            GROUP BY ALL),
        -- Reports of other times would say nothing of how the link was shared.
        together AS (
            SELECT id, host, port, flow, own, sum(packets) AS packets FROM leaving l
            SEMI JOIN (SELECT id, at_ns FROM leaving WHERE own) o USING (id, at_ns) GROUP BY ALL),
        full_links AS (
            SELECT t.id FROM together t JOIN late_steps s USING (id)
            GROUP BY t.id, s.started_ns, s.ended_ns, s.excess_ns
            HAVING count(*) > 1 AND sum(packets) / sum(packets) FILTER (own)
                * (1 - s.excess_ns / greatest(s.ended_ns - s.started_ns, 1)) >= {FULL})
        SELECT t.id, t.host AS switch, t.port, t.flow, t.packets, t.own
        FROM together t SEMI JOIN full_links USING (id)
    """
