"""Why a communicator's worst collective is late, as far as the network shows it: one row a cause.

An incast on a host outside the collective fills its last port, which stops other flows. Vedrfolnir
IV-A distinguishes backpressure from incast by where the pauses originate: before that last port,
such flows and the collective's may share links; what they wait for there is still the last port.
"""

from __future__ import annotations

from oncall.evidence import Param, relation


def _worst() -> str:
    """The collective that represents each communicator, and the roots of its late steps."""
    return """
        worst AS (
            SELECT job, comm, seq, any_value(lost_ns) AS lost_ns, any_value(took_ns) AS took_ns,
                min(started_ns) AS since_ns, max(ended_ns) AS until_ns,
                min(started_ns) FILTER (late AND traced) AS late_ns
            FROM critical_steps WHERE worst GROUP BY job, comm, seq),
        roots AS (FROM network_roots SEMI JOIN worst USING (job, comm, seq))
    """


def _outside_incasts() -> str:
    """Of each the largest incast meanwhile on a host that it sends nothing to."""
    return """
        meanwhile AS (
            SELECT job, comm, seq, min(started_ns) AS since_ns, max(ended_ns) AS until_ns
            FROM late_steps SEMI JOIN worst USING (job, comm, seq) WHERE critical GROUP BY ALL),
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
            GROUP BY ALL HAVING max(t.depth) < $least_queue),
        outside AS (
            FROM stopping ANTI JOIN shallow USING (job, comm, seq, switch, port)
            QUALIFY row_number() OVER (
                PARTITION BY job, comm, seq ORDER BY senders DESC, paused_ns DESC, host) = 1)
    """


def _placed() -> str:
    """Roots; where most of what is met converges outside, waiting begins at its end.

    The end is the port with the queue that nothing of the collective passes, else the last one. A
    queue of others that was not reported is what such an incast brings, too. The host of a queue is
    that which all of its packets are bound for.
    """
    return """
        converging AS (
            SELECT r.id, r.switch, r.port, any_value(o.host) AS host,
                any_value(o.switch) AS last_switch, any_value(o.port) AS last_port,
                any_value(o.paused_label) AS paused_label, any_value(o.paused_ns) AS paused_ns
            FROM roots r JOIN outside o USING (job, comm, seq)
            LEFT JOIN step_flows f ON f.id = r.id AND f.switch = r.switch AND f.port = r.port
                AND NOT f.member
            WHERE r.kind IN ('contention', 'backpressure')
            GROUP BY r.id, r.switch, r.port
            HAVING 2 * coalesce(sum(f.part) FILTER (list_contains(o.flows, f.flow)), 0)
                > sum(f.part) OR bool_and(r.kind = 'backpressure' AND NOT r.seen)),
        ends AS (
            SELECT r.job, r.comm, r.seq, switch, port
            FROM roots r JOIN converging USING (id, switch, port)
            WHERE r.kind = 'backpressure' AND r.seen
            QUALIFY row_number() OVER (PARTITION BY r.job, r.comm, r.seq
                ORDER BY r.lost_ns DESC, r.label, id) = 1),
        bound AS (
            SELECT r.id, r.switch, r.port, any_value(z.dst_host) AS host
            FROM roots r JOIN step_flows f USING (id, switch, port)
            JOIN flow_sizes z ON z.flow = f.flow
            WHERE r.kind = 'backpressure' GROUP BY ALL HAVING count(DISTINCT z.dst_host) = 1),
        placed AS (
            SELECT r.* REPLACE (
                    CASE WHEN s.host IS NULL THEN r.kind ELSE 'backpressure' END AS kind,
                    CASE WHEN s.host IS NULL THEN r.switch
                        ELSE coalesce(e.switch, s.last_switch) END AS switch,
                    CASE WHEN s.host IS NULL THEN r.port
                        ELSE coalesce(e.port, s.last_port) END AS port,
                    CASE WHEN s.host IS NULL THEN r.label WHEN e.switch IS NULL
                        THEN s.last_switch || 'P' || s.last_port ELSE e.switch || 'P' || e.port
                        END AS label,
                    coalesce(s.host, r.host, b.host) AS host,
                    coalesce(r.paused_label, s.paused_label) AS paused_label,
                    coalesce(r.paused_ns, s.paused_ns) AS paused_ns),
                s.host IS NOT NULL AS outside
            FROM roots r LEFT JOIN converging s USING (id, switch, port)
            LEFT JOIN bound b USING (id, switch, port)
            LEFT JOIN ends e ON e.job = r.job AND e.comm = r.comm AND e.seq = r.seq)
    """


def _ports() -> str:
    """The ports where the collective's waiting begins, if much was lost there.

    Roots on the critical path, if there are any. Steps that meet only because one of them is late
    (overrun) are no roots. A deadlock in which a step does not end is the only root. Queues that
    nobody reported are known by their pauses alone: where flows meet, these must make up the share
    of all that was lost, or do so together with what was seen.
    """
    return """
        kept AS (
            SELECT p.*, w.lost_ns AS all_lost_ns FROM (
                SELECT *, bool_or(kind = 'deadlock' AND critical AND NOT over) OVER one AS locked
                FROM placed
                WINDOW one AS (PARTITION BY job, comm, seq)
                QUALIFY critical OR NOT bool_or(critical) OVER one) p
            JOIN worst w USING (job, comm, seq)
            WHERE kind <> 'overrun' AND (NOT locked OR (kind = 'deadlock' AND NOT over))),
        ports AS (
            SELECT job, comm, seq, kind, label, any_value(switch) AS switch,
                any_value(port) AS port, any_value(host) AS host,
                arg_max(paused_label, lost_ns) AS paused_label,
                arg_max(CASE WHEN outside AND NOT list_contains(spread, label)
                    THEN list_append(spread, label) ELSE spread END, len(spread)) AS ports,
                sum(lost_ns) AS lost_ns, bool_or(seen) AS seen, max(depth) AS depth,
                max(longest_ns) AS longest_ns, arg_max(paused_ns, lost_ns) AS paused_ns,
                min(at_ns) AS at_ns, arg_min(packets, idle_packets / packets) AS packets,
                arg_min(idle_label, idle_packets / packets) AS idle_label,
                arg_min(idle_packets, idle_packets / packets) AS idle_packets,
                CASE WHEN bool_or(seen) THEN sum(lost_ns) ELSE sum(least(lost_ns, paused_ns)) END
                    AS known_ns,
                sum(lost_ns) / sum(sum(lost_ns)) OVER one AS share,
                any_value(all_lost_ns) AS all_lost_ns
            FROM kept GROUP BY job, comm, seq, kind, label
            WINDOW one AS (PARTITION BY job, comm, seq)),
        meeting AS (
            SELECT * FROM ports WHERE kind = 'contention'
            QUALIFY seen
                OR sum(known_ns) OVER (PARTITION BY job, comm, seq) >= $share * all_lost_ns)
    """


def _others() -> str:
    """Loops meanwhile; flows that share a host's link with a late step, whatever way they take
    between, where switches report less than the share of what was lost; and incasts, if most of
    those who contributed begin together."""
    return """
        loops AS (
            SELECT w.job, w.comm, w.seq, 'loop' AS kind, g.name AS flow, g.ports, g.astray,
                g.first_ns AS at_ns
            FROM forwarding_loops g
            JOIN worst w ON g.last_ns > w.since_ns AND g.first_ns < w.until_ns),
        reported AS (
            SELECT job, comm, seq FROM kept WHERE critical GROUP BY ALL
            HAVING sum(CASE WHEN seen THEN lost_ns ELSE least(lost_ns, paused_ns) END)
                >= $share * any_value(all_lost_ns)),
        sharers AS (
            SELECT s.job, s.comm, s.seq, 'shared_link' AS kind, s.started_ns AS at_ns,
                f.name AS flow, f.src_host AS node, f.bytes,
                CASE WHEN f.src_host = s.src_host THEN s.src_host ELSE s.dst_host END AS host
            FROM late_steps s SEMI JOIN worst USING (job, comm, seq)
            ANTI JOIN reported USING (job, comm, seq)
            JOIN flow_sizes f ON (f.src_host = s.src_host OR f.dst_host = s.dst_host)
                AND NOT f.is_collective AND f.started_ns < s.ended_ns AND f.ended_ns > s.started_ns
            WHERE s.critical
            QUALIFY row_number() OVER (
                PARTITION BY s.job, s.comm, f.flow ORDER BY s.started_ns) = 1),
        -- The last port is shared by all who begin with a flow, reported or not.
        begun AS (
            SELECT a.flow, a.dst_host AS host, list(b.flow) AS flows, count(*) AS senders
            FROM flow_sizes a JOIN flow_sizes b ON a.dst_host = b.dst_host AND NOT a.is_collective
                AND NOT b.is_collective
                AND coalesce(b.started_ns - a.started_ns BETWEEN 0 AND $together, true)
            GROUP BY a.flow, a.dst_host HAVING count(*) >= $senders),
        named AS (
            SELECT *, count(*) OVER (PARTITION BY job, comm, seq) AS named FROM contributors
            SEMI JOIN worst USING (job, comm, seq)),
        incasts AS (
            SELECT c.job, c.comm, c.seq, 'incast' AS kind, g.host, max(g.senders) AS senders,
                arg_max(g.flows, g.senders) AS flows
            FROM named c JOIN begun g ON list_contains(g.flows, c.flow)
            GROUP BY c.job, c.comm, c.seq, g.host
            HAVING count(DISTINCT c.name) * 2 > any_value(c.named))
    """


@relation(
    "network_causes",
    reads=["critical_steps", "late_steps"],
    optional=[
        *("network_roots", "step_ports", "step_flows", "step_waits", "pause_spans", "links"),
        *("ranks", "flow_sizes", "contributors", "forwarding_loops", "late_ends"),
    ],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("comm", "UBIGINT", "", "communicator"),
        ("seq", "BIGINT", "", "of its collectives the one that lost most"),
        (
            "kind",
            "VARCHAR",
            "",
            "ports: contention, backpressure, storm or deadlock; flows: loop, shared_link or "
            "incast; ends: what NICs at its ends show; unexplained: late, and nothing shows why",
        ),
        ("suspect", "VARCHAR", "", "the port that pauses come from; else flows or ends"),
        ("label", "VARCHAR", "", "the port"),
        ("switch", "VARCHAR", "", "its device"),
        ("port", "INTEGER", "", "its number there"),
        ("host", "VARCHAR", "", "the host behind the port, whose link is shared, or of an incast"),
        ("node", "VARCHAR", "", "the sender of the flow"),
        ("flow", "VARCHAR", "", "the flow's name; of a loop NULL: neither reported nor inferred"),
        ("bytes", "BIGINT", "bytes", "its size"),
        ("flows", "BIGINT[]", "", "the flows of an incast"),
        ("senders", "BIGINT", "flows", "how many of them begin together"),
        ("paused_label", "VARCHAR", "", "the port that was stopped, if any"),
        ("ports", "VARCHAR[]", "", "from the step's path to the port; the cycle, the loop"),
        ("astray", "VARCHAR[]", "", "of a loop the ports that lead away from the receiver"),
        ("lost_ns", "DOUBLE", "ns", "what the collective lost there"),
        ("share", "DOUBLE", "ratio", "of what it lost at all roots"),
        ("seen", "BOOLEAN", "", "the queue was reported; else it was inferred from pauses alone"),
        ("depth", "DOUBLE", "packets", "mean queue depth, at the worst"),
        ("longest_ns", "BIGINT", "ns", "longest pause of the port that was stopped"),
        ("paused_ns", "DOUBLE", "ns", "all of that port's pauses during the step"),
        ("packets", "DOUBLE", "packets", "through the port, where one beside it was least busy"),
        ("idle_label", "VARCHAR", "", "that one, which could carry the same flow"),
        ("idle_packets", "DOUBLE", "packets", "through that one"),
        ("at_ns", "BIGINT", "ns", "since when"),
    ],
    source="Vedrfolnir II-B (loops, load imbalance), III-B (critical path), III-D2 (signatures), "
    "IV-A (incast, PFC backpressure)",
    params={
        "least_queue": "network_roots.least_queue",
        "share": Param(
            "30 %",
            "of what the critical path lost; a cause of less is not what made the collective late",
        ),
        "senders": Param(
            3, "two senders to one host are a collision; the paper's incasts have three to eight"
        ),
        "together": Param(
            "300 us", "one request or barrier begins an incast; further apart, flows only meet"
        ),
        "clearly": "late_ends.clearly",
    },
)
def network_causes() -> str:
    """Ports, flows and hosts that made each communicator's worst collective late."""
    return f"""
        WITH {_worst()}, {_outside_incasts()}, {_placed()}, {_ports()}, {_others()},
        found AS (
            SELECT p.*, label AS suspect FROM ports p
            WHERE kind <> 'contention' AND share >= $share AND NOT (kind = 'deadlock' AND EXISTS (
                FROM loops g WHERE g.comm = p.comm AND list_has_all(g.ports, p.ports)))
            UNION ALL BY NAME
            SELECT *, 'flows' AS suspect FROM (FROM meeting QUALIFY
                sum(share) OVER (PARTITION BY job, comm, seq) >= $share)
            UNION ALL BY NAME SELECT *, 'flows' AS suspect FROM loops
            UNION ALL BY NAME SELECT *, 'flows' AS suspect FROM sharers
            UNION ALL BY NAME
            SELECT job, comm, seq, 'ends' AS kind, 'ends' AS suspect, min(started_ns) AS at_ns
            FROM late_ends WHERE chosen GROUP BY ALL)
        FROM found UNION ALL BY NAME
        SELECT *, 'flows' AS suspect FROM incasts
        SEMI JOIN (FROM found WHERE suspect = 'flows') USING (job, comm, seq)
        UNION ALL BY NAME
        SELECT job, comm, seq, 'unexplained' AS kind, 'flows' AS suspect, late_ns AS at_ns
        FROM worst ANTI JOIN found USING (job, comm) ANTI JOIN roots USING (job, comm, seq)
        WHERE late_ns IS NOT NULL AND lost_ns > $clearly * took_ns
    """
