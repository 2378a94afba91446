"""Flows that leave one host together: they meet on its own link, before any switch can see it.

What a switch shows is that the sender's flows together come at the rate which the step would have
alone: then its link was full, and what the others sent, the step could not. Where every epoch of a
flow was reported, that is known epoch by epoch; else of all that was reported of the step. Flows
that leave a switch together, too, filled the link before if they pass as many packets as a port
with a queue: there is none where the host's link has set their pace.
"""

from __future__ import annotations

from oncall.evidence import Param, relation


def _leaving() -> str:
    """Packets of flows that left the late step's host while it ran."""
    return """
        ends AS (
            SELECT a AS host, a_port AS port, rate_bytes_per_s FROM links
            UNION SELECT b, b_port, rate_bytes_per_s FROM links),
        single AS (
            SELECT host, any_value(port) AS port,
                nullif(any_value(rate_bytes_per_s), 0) / 1e9 AS bytes_per_ns
            FROM ends GROUP BY host HAVING count(*) = 1),
        epochs AS (
            SELECT flow, at_ns, max(packets) AS packets, max(epoch_ns) AS epoch_ns
            FROM switch_flows WHERE packets > 0 GROUP BY ALL),
        leaving AS (
            SELECT s.id, h.host, h.port, p.*, p.flow = s.flow AS own
            FROM late_steps s JOIN single h ON h.host = s.src_host
            JOIN flows f ON f.src_host = h.host AND coalesce(f.started_ns < s.ended_ns, true)
                AND coalesce(f.ended_ns > s.started_ns, true)
            JOIN epochs p ON p.flow = f.flow
                AND p.at_ns > s.started_ns AND p.at_ns - coalesce(p.epoch_ns, 0) < s.ended_ns
            WHERE s.flow IS NOT NULL),
        -- Reports of other times would say nothing of how the link was shared.
        together AS (
            SELECT * FROM leaving SEMI JOIN (SELECT id, at_ns FROM leaving WHERE own) o
            USING (id, at_ns))
    """


def _full_by_rate() -> str:
    """Steps and epochs in which these packets filled the link."""
    return """
        full_steps AS (
            SELECT t.id FROM together t JOIN late_steps s USING (id)
            GROUP BY t.id, s.started_ns, s.ended_ns, s.excess_ns
            HAVING count(DISTINCT t.flow) > 1 AND sum(packets) / sum(packets) FILTER (own)
                * (1 - s.excess_ns / greatest(s.ended_ns - s.started_ns, 1)) >= $full),
        -- Packets that the host's link takes in a nanosecond, by the size of the step's.
        sizes AS (
            SELECT e.flow, e.packets / w.bytes AS packets_per_byte
            FROM (SELECT flow, sum(packets) AS packets, sum(epoch_ns) AS seen_ns
                FROM epochs GROUP BY flow) e
            JOIN (SELECT flow, sum(bytes) AS bytes, sum(ended_ns - started_ns) AS took_ns
                FROM step_waits GROUP BY flow) w USING (flow)
            WHERE e.seen_ns >= $whole * w.took_ns AND w.bytes > 0),
        full_epochs AS (
            SELECT t.id, t.at_ns FROM together t JOIN late_steps s USING (id)
            JOIN sizes z ON z.flow = s.flow JOIN single h ON h.host = t.host
            GROUP BY t.id, t.at_ns, z.packets_per_byte, h.bytes_per_ns
            HAVING count(*) > 1 AND sum(t.packets)
                >= $full * max(t.epoch_ns) * z.packets_per_byte * h.bytes_per_ns)
    """


def _full_by_ports() -> str:
    """Flows that shared a port with the step at the rate of the fastest port."""
    return """
        fastest AS (
            SELECT max(packets / epoch_ns) AS packets_per_ns FROM switch_ports
            WHERE queue_depth >= $least_queue AND epoch_ns > 0
                AND (SELECT count(DISTINCT rate_bytes_per_s) FROM links) = 1),
        beside AS (
            SELECT DISTINCT t.id, t.at_ns, t.flow, t.packets, t.epoch_ns
            FROM together t JOIN late_steps s USING (id)
            JOIN switch_flows o ON o.flow = s.flow AND o.at_ns = t.at_ns AND o.packets > 0
            JOIN switch_flows p ON p.flow = t.flow AND p.at_ns = t.at_ns AND p.packets > 0
                AND p.switch = o.switch AND p.port = o.port),
        full_ports AS (
            SELECT id, at_ns FROM beside GROUP BY ALL
            HAVING count(*) > 1 AND sum(packets)
                >= $full * max(epoch_ns) * (SELECT packets_per_ns FROM fastest)),
        paced AS (SELECT id, at_ns, flow FROM beside SEMI JOIN full_ports USING (id, at_ns))
    """


@relation(
    "sender_links",
    reads=["late_steps"],
    optional=["step_waits", "switch_flows", "switch_ports", "flows", "links"],
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
    params={
        "least_queue": "network_roots.least_queue",
        "full": Param("90 %", "of the step's rate alone: together they were that fast"),
        "whole": Param(
            "90 %",
            "of the time of a flow's steps: with this much reported, all its packets are known",
        ),
    },
)
def sender_links() -> str:
    """Each flow on the link of a late step's sender, if that link was full."""
    stages = (_leaving(), _full_by_rate(), _full_by_ports())
    return f"""
        WITH {",".join(stages)}
        SELECT id, host AS switch, port, flow, sum(packets) AS packets, any_value(own) AS own
        FROM together t
        WHERE id IN (FROM full_steps) OR (id, at_ns) IN (SELECT (id, at_ns) FROM full_epochs)
            OR (id, at_ns, flow) IN (SELECT (id, at_ns, flow) FROM paced)
        GROUP BY ALL
    """
