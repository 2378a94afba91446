"""The first edge of the provenance graph as the hosts see it: their NICs' pause counters."""

from __future__ import annotations

from oncall.evidence import relation


@relation(
    "host_pauses",
    reads=["late_steps"],
    optional=["nic_rates", "links"],
    empty_without=["late_steps", "nic_rates"],
    columns=[
        ("id", "INTEGER", "", "the late step"),
        ("job", "VARCHAR", "", "the job"),
        ("comm", "UBIGINT", "", "communicator"),
        ("seq", "BIGINT", "", "the collective"),
        ("node", "VARCHAR", "", "its sender's host"),
        ("nic", "VARCHAR", "", "a NIC of it that was paused meanwhile"),
        ("pauses", "BIGINT", "frames", "pause frames received"),
        ("paused", "DOUBLE", "ratio", "share of the time it was paused; NULL: not counted"),
        ("tor_port", "VARCHAR", "", "the switch port it is linked to, where known"),
        ("critical", "BOOLEAN", "", "the step is on the longest path"),
        ("at_ns", "BIGINT", "ns", "start of the step"),
    ],
    source="Vedrfolnir III-D1: e(p, p), from the host's side",
)
def host_pauses() -> str:
    """NICs that the network paused while a step that they sent was late."""
    return """
        WITH ends AS (
            SELECT a AS host, b AS switch, b_port AS port FROM links
            UNION SELECT b, a, a_port FROM links),
        tors AS (SELECT host, any_value(switch || 'P' || port) AS tor_port FROM ends
            GROUP BY host HAVING count(*) = 1)
        SELECT s.id, s.job, s.comm, s.seq, r.node, r.nic, sum(r.pfc_rx_pause) AS pauses,
            max(r.rx_paused) AS paused, any_value(o.tor_port) AS tor_port,
            any_value(s.critical) AS critical, any_value(s.started_ns) AS at_ns
        FROM late_steps s JOIN nic_rates r
            ON r.node = s.src_host AND r.at_ns > s.started_ns AND r.since_ns < s.ended_ns
        LEFT JOIN tors o ON o.host = r.node
        GROUP BY s.id, s.job, s.comm, s.seq, r.node, r.nic
        HAVING sum(r.pfc_rx_pause) > 0
    """
