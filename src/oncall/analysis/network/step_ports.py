"""What the switches reported about each port during a late step, and flow by flow.

Flows that leave one host together meet on its own link, before any switch can see it. What a switch
shows is that the sender's flows together come at the rate which the step would have alone: then its
link was full, and what the others sent, the step could not.
"""

from __future__ import annotations

from oncall.evidence import relation


def _on_sender_links() -> str:
    """Each flow on the link of a late step's sender, if the packets that left the host then filled
    it."""
    return """
        ends AS (SELECT a AS host, a_port AS port FROM links UNION SELECT b, b_port FROM links),
        single AS (
            SELECT host, any_value(port) AS port FROM ends GROUP BY host HAVING count(*) = 1),
        passed AS (
            SELECT flow, at_ns, max(packets) AS packets, max(epoch_ns) AS epoch_ns
            FROM switch_flows WHERE packets > 0 GROUP BY ALL),
        leaving AS (
            SELECT s.id, h.host, h.port, p.*, p.flow = s.flow AS own
            FROM late_steps s JOIN single h ON h.host = s.src_host
            JOIN flows f ON f.src_host = h.host AND coalesce(f.started_ns < s.ended_ns, true)
                AND coalesce(f.ended_ns > s.started_ns, true)
            JOIN passed p ON p.flow = f.flow
                AND p.at_ns > s.started_ns AND p.at_ns - coalesce(p.epoch_ns, 0) < s.ended_ns
            WHERE s.flow IS NOT NULL),
        -- Reports of other times would say nothing of how the link was shared.
        together AS (
            SELECT * FROM leaving SEMI JOIN (SELECT id, at_ns FROM leaving WHERE own) o
            USING (id, at_ns)),
        full_steps AS (
            SELECT t.id FROM together t JOIN late_steps s USING (id)
            GROUP BY t.id, s.started_ns, s.ended_ns, s.excess_ns
            HAVING count(DISTINCT t.flow) > 1 AND sum(packets) / sum(packets) FILTER (own)
                * (1 - s.excess_ns / greatest(s.ended_ns - s.started_ns, 1)) >= $full),
        on_sender_links AS (
            SELECT id, host AS switch, port, flow, sum(packets) AS packets
            FROM together SEMI JOIN full_steps USING (id) GROUP BY ALL)
    """


@relation(
    "step_ports",
    reads=["late_steps"],
    empty_without=["late_steps", "switch_ports|pause_spans|step_flows"],
    columns=[
        ("id", "INTEGER", "", "the late step"),
        ("switch", "VARCHAR", "", "a device"),
        ("port", "INTEGER", "", "its egress port"),
        ("packets", "DOUBLE", "packets", "through it, in the epochs reported; NULL: no report"),
        "queued",
        ("depth", "DOUBLE", "packets", "mean queue depth"),
        ("deep", "BOOLEAN", "", "so deep that packets wait there; NULL: no report"),
        ("paused_ns", "DOUBLE", "ns", "it was paused"),
        ("longest_ns", "BIGINT", "ns", "longest pause without a break; NULL: not reported"),
    ],
    source="Vedrfolnir III-C3",
    params={"least_queue": "network_roots.least_queue"},
)
def step_ports() -> str:
    """Each port's queue and pauses during a late step.

    The queue of a sender's own link is not reported: it counts as the shortest queue. Where no
    pause was recorded, a port counts as stopped for the share of its packets that found it stopped.
    """
    return """
        WITH reported AS (
            SELECT s.id, p.switch, p.port, sum(p.packets) AS packets,
                sum(p.packets * p.queue_depth) AS queued,
                sum(p.epoch_ns * p.paused_packets / nullif(p.packets, 0)) AS paused_ns,
                sum(p.epoch_ns) AS seen_ns
            FROM late_steps s JOIN switch_ports p
                ON p.at_ns > s.started_ns AND p.at_ns - coalesce(p.epoch_ns, 0) < s.ended_ns
            GROUP BY ALL
            UNION ALL
            SELECT id, switch, port, sum(packets), $least_queue * sum(packets), NULL, NULL
            FROM step_flows WHERE on_sender_link GROUP BY ALL),
        stopped AS (
            SELECT s.id, p.switch, p.port,
                sum(least(p.ended_ns, s.ended_ns) - greatest(p.started_ns, s.started_ns))
                    AS paused_ns,
                max(p.ended_ns - p.started_ns) AS longest_ns
            FROM late_steps s JOIN pause_spans p
                ON p.ended_ns > s.started_ns AND p.started_ns < s.ended_ns
            GROUP BY ALL)
        SELECT id, switch, port, t.packets, t.queued, t.queued / nullif(t.packets, 0) AS depth,
            depth >= $least_queue AS deep,
            CASE WHEN EXISTS (FROM pause_spans) THEN coalesce(p.paused_ns, 0)
                ELSE t.paused_ns * (s.ended_ns - s.started_ns) / nullif(t.seen_ns, 0) END
                AS paused_ns,
            p.longest_ns
        FROM reported t FULL JOIN stopped p USING (id, switch, port) JOIN late_steps s USING (id)
    """


@relation(
    "step_flows",
    reads=["late_steps"],
    empty_without=["late_steps", "switch_flows"],
    columns=[
        ("id", "INTEGER", "", "the late step"),
        "switch",
        ("port", "INTEGER", "", "its egress port"),
        ("flow", "BIGINT", "", "a flow seen there"),
        ("packets", "DOUBLE", "packets", "its packets"),
        ("queued", "DOUBLE", "packets", "packets that those met, summed"),
        ("part", "DOUBLE", "packets", "its part of all queues met there, epoch by epoch"),
        ("met", "DOUBLE", "packets", "its part of the queues that the late step's packets met"),
        ("deepest", "DOUBLE", "packets", "mean queue of the deepest epoch that saw it"),
        ("own", "BOOLEAN", "", "it is the late step's flow"),
        ("member", "BOOLEAN", "", "it is a flow of the collective"),
        ("name", "VARCHAR", "", "its name for display"),
        ("on_sender_link", "BOOLEAN", "", "the port is the late step's sender's, and it was full"),
    ],
    source="Vedrfolnir III-D1",
    params={
        "least_queue": "network_roots.least_queue",
        "full": "lost_time.nearly_all",
    },
)
def step_flows() -> str:
    """Each flow at each port while a late step ran."""
    return f"""
        WITH {_on_sender_links()}, members AS (
            SELECT DISTINCT job, comm, seq, flow FROM step_waits WHERE flow IS NOT NULL),
        names AS (SELECT flow, any_value(name) AS name FROM flows GROUP BY flow),
        seen AS (
            SELECT s.id, p.switch, p.port, p.at_ns, p.flow, p.packets,
                p.packets * p.queue_depth AS queued
            FROM late_steps s JOIN switch_flows p
                ON p.at_ns > s.started_ns AND p.at_ns - coalesce(p.epoch_ns, 0) < s.ended_ns
            WHERE p.packets > 0
            UNION ALL
            SELECT id, switch, port, 0, flow, packets, $least_queue * packets
            FROM on_sender_links),
        -- Who passed at a time without a queue has no part in that of another time.
        epochs AS (
            SELECT p.id, p.switch, p.port, p.at_ns, sum(p.packets) AS packets,
                sum(p.queued) AS queued, sum(p.queued) FILTER (p.flow = s.flow) AS own_queued
            FROM seen p JOIN late_steps s USING (id) GROUP BY ALL)
        SELECT s.id, p.switch, p.port, p.flow, sum(p.packets) AS packets,
            sum(p.queued) AS queued, sum(e.queued * p.packets / e.packets) AS part,
            sum(e.own_queued * p.packets / e.packets) AS met,
            max(e.queued / e.packets) AS deepest,
            coalesce(bool_or(p.flow = s.flow), false) AS own,
            bool_or(m.flow IS NOT NULL) AS member,
            coalesce(any_value(n.name), 'flow ' || p.flow) AS name,
            (s.id, p.switch) IN (SELECT (id, switch) FROM on_sender_links) AS on_sender_link
        FROM late_steps s JOIN seen p USING (id)
        JOIN epochs e ON e.id = p.id AND e.switch = p.switch AND e.port = p.port
            AND e.at_ns = p.at_ns
        LEFT JOIN members m
            ON m.job = s.job AND m.comm = s.comm AND m.seq = s.seq AND m.flow = p.flow
        LEFT JOIN names n ON n.flow = p.flow
        GROUP BY s.id, p.switch, p.port, p.flow
    """
