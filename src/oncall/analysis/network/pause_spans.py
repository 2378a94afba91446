"""Priority flow control over time: when a port had to stop, for how long, and who stopped it."""

from __future__ import annotations

from oncall.evidence import relation


@relation(
    "pause_spans",
    reads=["switch_pauses"],
    optional=["links", "flow_steps", "switch_ports"],
    columns=[
        ("switch", "VARCHAR", "", "the device that had to stop"),
        ("port", "INTEGER", "", "its port"),
        ("started_ns", "BIGINT", "ns", "the pause"),
        ("ended_ns", "BIGINT", "ns", "the resume, else the last instant it is known of"),
        ("over", "BOOLEAN", "", "the resume was recorded"),
        ("by_switch", "VARCHAR", "", "the device that paused it: its link's other end"),
        ("by_port", "INTEGER", "", "the port that sent the pause"),
    ],
    source="IEEE 802.1Qbb; Vedrfolnir III-C3",
)
def pause_spans() -> str:
    """A port's pauses. One that is repeated before it ends goes on."""
    return """
        WITH changes AS (
            SELECT * FROM switch_pauses WHERE at_ns IS NOT NULL AND paused IS NOT NULL
            QUALIFY paused IS DISTINCT FROM
                coalesce(lag(paused) OVER (PARTITION BY switch, port ORDER BY at_ns), false)),
        spans AS (
            SELECT switch, port, at_ns AS started_ns, paused,
                lead(at_ns) OVER (PARTITION BY switch, port ORDER BY at_ns) AS ended_ns
            FROM changes),
        -- Where every step ended, traffic flowed again: a pause without its end was not recorded
        -- to its end. Where one goes on, so may the pause.
        newest AS (
            SELECT greatest(
                (SELECT max(at_ns) FROM switch_pauses),
                (SELECT max(coalesce(ended_ns, started_ns)) FROM flow_steps
                 WHERE EXISTS (FROM flow_steps WHERE ended_ns IS NULL)),
                (SELECT max(at_ns) FROM switch_ports
                 WHERE EXISTS (FROM flow_steps WHERE ended_ns IS NULL))) AS at_ns),
        ends AS (
            SELECT a AS switch, a_port AS port, b AS by_switch, b_port AS by_port FROM links
            UNION SELECT b, b_port, a, a_port FROM links)
        SELECT s.switch, s.port, s.started_ns, coalesce(s.ended_ns, n.at_ns) AS ended_ns,
            s.ended_ns IS NOT NULL AS over, e.by_switch, e.by_port
        FROM spans s LEFT JOIN ends e USING (switch, port) CROSS JOIN newest n
        WHERE s.paused
    """
