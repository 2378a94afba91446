"""What the switches said about each port while a late step ran."""

from __future__ import annotations

from oncall.evidence import relation

# Of one collective, only so many late steps are followed into the network, the worst first: the
# critical path has few, and beyond some tens they tell nothing new.
MOST_STEPS = 48


@relation(
    "late_steps",
    reads=["step_waits"],
    optional=["ranks", "flows"],
    columns=[
        ("id", "INTEGER", "", "number of the step among these"),
        ("job", "VARCHAR", "", "the job"),
        ("comm", "UBIGINT", "", "communicator"),
        ("seq", "BIGINT", "", "the collective"),
        ("flow", "BIGINT", "", "its flow"),
        ("src", "INTEGER", "", "sending rank"),
        ("dst", "INTEGER", "", "receiving rank"),
        ("step", "INTEGER", "", "step of the algorithm"),
        ("started_ns", "BIGINT", "ns", "first byte"),
        ("ended_ns", "BIGINT", "ns", "last byte"),
        ("excess_ns", "DOUBLE", "ns", "what it took too long"),
        ("critical", "BOOLEAN", "", "on the longest path"),
        ("over", "BOOLEAN", "", "it has ended"),
        ("src_host", "VARCHAR", "", "host of the sender, as the topology calls it"),
        ("dst_host", "VARCHAR", "", "host of the receiver"),
    ],
    source="Vedrfolnir III-D1",
)
def late_steps() -> str:
    """The late steps of each collective that is late by them, the worst first."""
    return f"""
        WITH homes AS (SELECT job, rank, any_value(node) AS node FROM ranks GROUP BY ALL),
        named AS (
            SELECT flow, any_value(src_host) AS src_host, any_value(dst_host) AS dst_host
            FROM flows GROUP BY flow),
        ranked AS (
            SELECT w.*, row_number() OVER (PARTITION BY job, comm, seq
                ORDER BY critical DESC, over, excess_ns DESC NULLS LAST, src, step) AS worst
            FROM step_waits w WHERE late
            QUALIFY bool_or(critical) OVER (PARTITION BY job, comm, seq))
        SELECT row_number() OVER (ORDER BY w.job, comm, seq, worst) AS id, w.job, comm, seq, flow,
            src, dst, step, started_ns, ended_ns,
            coalesce(greatest(excess_ns, 0), ended_ns - started_ns) AS excess_ns, critical, over,
            coalesce(a.node, f.src_host) AS src_host, coalesce(b.node, f.dst_host) AS dst_host
        FROM ranked w LEFT JOIN homes a ON a.job = w.job AND a.rank = w.src
        LEFT JOIN homes b ON b.job = w.job AND b.rank = w.dst
        LEFT JOIN named f USING (flow)
        WHERE worst <= {MOST_STEPS}
    """


@relation(
    "step_ports",
    reads=["late_steps"],
    optional=["switch_ports", "pause_spans"],
    empty_without=["late_steps", "switch_ports|pause_spans"],
    columns=[
        ("id", "INTEGER", "", "the late step"),
        ("switch", "VARCHAR", "", "a device"),
        ("port", "INTEGER", "", "its egress port"),
        ("packets", "DOUBLE", "packets", "through it, in the epochs reported; NULL: no report"),
        ("queued", "DOUBLE", "packets", "packets that those met, summed"),
        ("depth", "DOUBLE", "packets", "mean queue depth"),
        ("paused_ns", "DOUBLE", "ns", "it had to stop"),
        ("longest_ns", "BIGINT", "ns", "longest pause without a break; NULL: not told"),
    ],
    source="Vedrfolnir III-C3",
)
def step_ports() -> str:
    """Each port's queue and pauses while a late step ran.

    Where no pause is told, a port was stopped for the share of its packets that met it stopped.
    """
    return """
        WITH told AS (
            SELECT s.id, p.switch, p.port, sum(p.packets) AS packets,
                sum(p.packets * p.queue_depth) AS queued,
                sum(p.epoch_ns * p.paused_packets / nullif(p.packets, 0)) AS paused_ns,
                sum(p.epoch_ns) AS seen_ns
            FROM late_steps s JOIN switch_ports p
                ON p.at_ns > s.started_ns AND p.at_ns - coalesce(p.epoch_ns, 0) < s.ended_ns
            GROUP BY ALL),
        stopped AS (
            SELECT s.id, p.switch, p.port,
                sum(least(p.ended_ns, s.ended_ns) - greatest(p.started_ns, s.started_ns))
                    AS paused_ns,
                max(p.ended_ns - p.started_ns) AS longest_ns
            FROM late_steps s JOIN pause_spans p
                ON p.ended_ns > s.started_ns AND p.started_ns < s.ended_ns
            GROUP BY ALL)
        SELECT id, switch, port, t.packets, t.queued, t.queued / nullif(t.packets, 0) AS depth,
            CASE WHEN EXISTS (FROM pause_spans) THEN coalesce(p.paused_ns, 0)
                ELSE t.paused_ns * (s.ended_ns - s.started_ns) / nullif(t.seen_ns, 0) END
                AS paused_ns,
            p.longest_ns
        FROM told t FULL JOIN stopped p USING (id, switch, port) JOIN late_steps s USING (id)
    """


@relation(
    "step_flows",
    reads=["late_steps"],
    optional=["switch_flows", "step_waits", "flows"],
    empty_without=["late_steps", "switch_flows"],
    columns=[
        ("id", "INTEGER", "", "the late step"),
        ("switch", "VARCHAR", "", "a switch"),
        ("port", "INTEGER", "", "its egress port"),
        ("flow", "BIGINT", "", "a flow seen there"),
        ("packets", "DOUBLE", "packets", "its packets"),
        ("queued", "DOUBLE", "packets", "packets that those met, summed"),
        ("own", "BOOLEAN", "", "it is the late step's flow"),
        ("member", "BOOLEAN", "", "it is a flow of the collective"),
        ("name", "VARCHAR", "", "what to call it"),
    ],
    source="Vedrfolnir III-D1",
)
def step_flows() -> str:
    """Each flow at each port while a late step ran."""
    return """
        WITH members AS (
            SELECT DISTINCT job, comm, seq, flow FROM step_waits WHERE flow IS NOT NULL),
        names AS (SELECT flow, any_value(name) AS name FROM flows GROUP BY flow)
        SELECT s.id, p.switch, p.port, p.flow, sum(p.packets) AS packets,
            sum(p.packets * p.queue_depth) AS queued,
            coalesce(bool_or(p.flow = s.flow), false) AS own,
            bool_or(m.flow IS NOT NULL) AS member,
            coalesce(any_value(n.name), 'flow ' || p.flow) AS name
        FROM late_steps s JOIN switch_flows p
            ON p.at_ns > s.started_ns AND p.at_ns - coalesce(p.epoch_ns, 0) < s.ended_ns
        LEFT JOIN members m
            ON m.job = s.job AND m.comm = s.comm AND m.seq = s.seq AND m.flow = p.flow
        LEFT JOIN names n ON n.flow = p.flow
        WHERE p.packets > 0
        GROUP BY s.id, p.switch, p.port, p.flow
    """
