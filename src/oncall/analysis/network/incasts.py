"""Incasts on hosts outside the collective, whose last port fills up and stops other flows.

Vedrfolnir IV-A distinguishes backpressure from incast by where the pauses originate. Before that
last port, such flows and the collective's may share links; what they wait for there is still the
last port.
"""

from __future__ import annotations

from oncall.analysis.network.network_roots import ROOT_COLUMNS
from oncall.evidence import Param, relation


@relation(
    "outside_incasts",
    reads=["late_steps"],
    optional=["flow_sizes", "links", "pause_spans", "ranks", "step_ports", "step_waits"],
    empty_without=["late_steps", "flow_sizes", "links", "pause_spans"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("comm", "UBIGINT", "", "communicator"),
        ("seq", "BIGINT", "", "the collective"),
        (
            "host",
            "VARCHAR",
            "",
            "the host that the flows converge on; the collective sends it nothing",
        ),
        ("senders", "BIGINT", "flows", "how many begin together"),
        ("flows", "BIGINT[]", "", "these"),
        ("switch", "VARCHAR", "", "device of the last port, which stops others meanwhile"),
        ("port", "INTEGER", "", "the port to the host"),
        ("paused_label", "VARCHAR", "", "the port that it stopped for longest"),
        ("paused_ns", "DOUBLE", "ns", "for how long, in total"),
    ],
    source="Vedrfolnir IV-A (PFC backpressure)",
    params={
        "least_queue": "network_roots.least_queue",
        "senders": Param(
            3, "two senders to one host are a collision; the paper's incasts have three to eight"
        ),
        "together": Param(
            "300 us", "one request or barrier begins an incast; further apart, flows only meet"
        ),
    },
)
def outside_incasts() -> str:
    """Of each late collective the largest incast meanwhile on a host that it sends nothing to."""
    return """
        WITH meanwhile AS (
            SELECT job, comm, seq, min(started_ns) AS since_ns, max(ended_ns) AS until_ns
            FROM late_steps WHERE critical GROUP BY ALL),
        receivers AS (
            SELECT DISTINCT w.job, w.comm, w.seq, r.node AS host
            FROM step_waits w JOIN ranks r ON r.job = w.job AND r.rank = w.dst),
        bursts AS (
            SELECT m.*, a.dst_host AS host, a.flow AS first_flow,
                list(DISTINCT b.flow) AS flows, count(DISTINCT b.flow) AS senders
            FROM meanwhile m
            JOIN flow_sizes a ON a.started_ns < m.until_ns AND a.ended_ns > m.since_ns
            JOIN flow_sizes b ON b.dst_host = a.dst_host
                AND b.started_ns - a.started_ns BETWEEN 0 AND $together
            WHERE NOT a.is_collective AND NOT b.is_collective
            GROUP BY ALL HAVING senders >= $senders),
        last_ports AS (
            SELECT a AS switch, a_port AS port, b AS host FROM links
            UNION SELECT b, b_port, a FROM links),
        stopping AS (
            SELECT u.* EXCLUDE (since_ns, until_ns, first_flow), p.switch, p.port,
                s.switch || 'P' || s.port AS paused_label,
                sum(s.ended_ns - s.started_ns)::DOUBLE AS paused_ns
            FROM bursts u JOIN last_ports p USING (host)
            JOIN pause_spans s ON s.by_switch = p.switch
                AND s.started_ns < u.until_ns AND s.ended_ns > u.since_ns
            ANTI JOIN receivers USING (job, comm, seq, host)
            GROUP BY ALL),
        shallow AS (
            SELECT l.job, l.comm, l.seq, t.switch, t.port
            FROM step_ports t JOIN late_steps l USING (id)
            GROUP BY ALL HAVING max(t.depth) < $least_queue)
        SELECT * FROM stopping ANTI JOIN shallow USING (job, comm, seq, switch, port)
        QUALIFY row_number() OVER (
            PARTITION BY job, comm, seq ORDER BY senders DESC, paused_ns DESC, host) = 1
    """


@relation(
    "flow_bursts",
    reads=["flow_sizes"],
    columns=[
        ("flow", "BIGINT", "", "a flow that is not the collective's"),
        ("dst_host", "VARCHAR", "", "its receiver"),
        ("members", "BIGINT[]", "", "all flows to it that begin with this one"),
        ("senders", "BIGINT", "flows", "how many"),
    ],
    source="Vedrfolnir IV-A (incast)",
    params={"senders": "outside_incasts.senders", "together": "outside_incasts.together"},
)
def flow_bursts() -> str:
    """Everyone who begins with a flow: the last port is shared by all, reported or not."""
    return """
        SELECT a.flow, a.dst_host, list(b.flow) AS members, count(*) AS senders FROM flow_sizes a
        JOIN flow_sizes b ON a.dst_host = b.dst_host AND NOT a.is_collective
            AND NOT b.is_collective
            AND coalesce(b.started_ns - a.started_ns BETWEEN 0 AND $together, true)
        GROUP BY a.flow, a.dst_host HAVING count(*) >= $senders
    """


@relation(
    "root_causes",
    reads=["network_roots"],
    optional=["flow_sizes", "outside_incasts", "step_flows"],
    empty_without=["network_roots"],
    columns=ROOT_COLUMNS,
    source="Vedrfolnir III-D2, IV-A",
)
def root_causes() -> str:
    """Where waiting begins; where most of what is met converges outside, that is at its end.

    The end is the port with the queue that nothing of the collective passes, else the last one. A
    queue of others that was not reported is what such an incast brings, too. The host of a queue is
    that which all of its packets are bound for.
    """
    return """
        WITH shares AS (
            SELECT r.id, r.switch, r.port, any_value(o.host) AS host,
                any_value(o.switch) AS last_switch, any_value(o.port) AS last_port,
                any_value(o.paused_label) AS paused_label, any_value(o.paused_ns) AS paused_ns
            FROM network_roots r JOIN outside_incasts o USING (job, comm, seq)
            LEFT JOIN step_flows f ON f.id = r.id AND f.switch = r.switch AND f.port = r.port
                AND NOT f.member
            WHERE r.kind IN ('contention', 'backpressure')
            GROUP BY r.id, r.switch, r.port
            HAVING 2 * coalesce(sum(f.part) FILTER (list_contains(o.flows, f.flow)), 0)
                > sum(f.part) OR bool_and(r.kind = 'backpressure' AND NOT r.seen)),
        ends AS (
            SELECT r.job, r.comm, r.seq, switch, port
            FROM network_roots r JOIN shares USING (id, switch, port)
            WHERE r.kind = 'backpressure' AND r.seen
            QUALIFY row_number() OVER (PARTITION BY r.job, r.comm, r.seq
                ORDER BY r.lost_ns DESC, r.label, id) = 1),
        bound AS (
            SELECT r.id, r.switch, r.port, any_value(z.dst_host) AS host
            FROM network_roots r JOIN step_flows f USING (id, switch, port)
            JOIN flow_sizes z ON z.flow = f.flow
            WHERE r.kind = 'backpressure' GROUP BY ALL HAVING count(DISTINCT z.dst_host) = 1),
        placed AS (
            SELECT r.*, s.host AS incast_host, b.host AS bound_host,
                s.paused_label AS stopped, s.paused_ns AS stopped_ns,
                coalesce(e.switch, s.last_switch) AS end_switch,
                coalesce(e.port, s.last_port) AS end_port,
                end_switch || 'P' || end_port AS end_label
            FROM network_roots r LEFT JOIN shares s USING (id, switch, port)
            LEFT JOIN bound b USING (id, switch, port)
            LEFT JOIN ends e ON e.job = r.job AND e.comm = r.comm AND e.seq = r.seq)
        SELECT * EXCLUDE (incast_host, bound_host, stopped, stopped_ns, end_switch, end_port,
                end_label)
            REPLACE (
                CASE WHEN incast_host IS NULL THEN kind ELSE 'backpressure' END AS kind,
                CASE WHEN incast_host IS NULL THEN switch ELSE end_switch END AS switch,
                CASE WHEN incast_host IS NULL THEN port ELSE end_port END AS port,
                CASE WHEN incast_host IS NULL THEN label ELSE end_label END AS label,
                coalesce(incast_host, host, bound_host) AS host,
                coalesce(paused_label, stopped) AS paused_label,
                coalesce(paused_ns, stopped_ns) AS paused_ns,
                CASE WHEN incast_host IS NULL OR list_contains(spread, end_label) THEN spread
                    ELSE list_append(spread, end_label) END AS spread)
        FROM placed
    """
