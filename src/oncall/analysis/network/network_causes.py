"""Why a communicator's worst collective is late, as far as the network shows it.

Vedrfolnir IV-A distinguishes backpressure from incast by where the pauses originate: at a port that
no flow of the collective passes, or where it meets the flows that begin together.
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


def _placed() -> str:
    """Roots; the host of a queue is that which all of its packets are bound for."""
    return """
        bound AS (
            SELECT r.id, r.switch, r.port, any_value(z.dst_host) AS host
            FROM roots r JOIN step_flows f USING (id, switch, port)
            JOIN flow_sizes z ON z.flow = f.flow
            WHERE r.kind = 'backpressure' GROUP BY ALL HAVING count(DISTINCT z.dst_host) = 1),
        placed AS (
            SELECT r.* REPLACE (coalesce(r.host, b.host) AS host)
            FROM roots r LEFT JOIN bound b USING (id, switch, port))
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
                arg_max(spread, len(spread)) AS ports,
                sum(lost_ns) AS lost_ns, bool_or(seen) AS seen, max(depth) AS depth,
                max(longest_ns) AS longest_ns, arg_max(paused_ns, lost_ns) AS paused_ns,
                min(at_ns) AS at_ns, arg_min(idle_label, idle_packets / packets) AS idle_label,
                arg_min(idle_packets, idle_packets / packets) AS idle_packets,
                CASE WHEN bool_or(seen) THEN sum(lost_ns) ELSE sum(least(lost_ns, paused_ns)) END
                    AS known_ns,
                coalesce(min(idle_packets / packets) <= $idle, false) AS idle,
                sum(lost_ns) / sum(sum(lost_ns)) OVER one AS share,
                any_value(all_lost_ns) AS all_lost_ns
            FROM kept GROUP BY job, comm, seq, kind, label
            WINDOW one AS (PARTITION BY job, comm, seq)),
        meeting AS (
            SELECT * FROM ports WHERE kind = 'contention'
            WINDOW one AS (PARTITION BY job, comm, seq)
            QUALIFY seen OR sum(known_ns) OVER one >= $share * all_lost_ns),
        queues AS (
            SELECT * REPLACE (sum(share) OVER one AS share), row_number() OVER most AS place
            FROM meeting
            WINDOW one AS (PARTITION BY job, comm, seq), most AS (one ORDER BY lost_ns DESC)
            QUALIFY sum(share) OVER one >= $share)
    """


def _others() -> str:
    """Loops meanwhile, and flows that share a host's link with a late step, whatever way they take
    between, where switches report less than the share of what was lost."""
    return """
        loops AS (
            SELECT w.job, w.comm, w.seq, g.name AS flow, g.ports, g.astray, g.first_ns AS at_ns
            FROM forwarding_loops g
            JOIN worst w ON g.last_ns > w.since_ns AND g.first_ns < w.until_ns),
        reported AS (
            SELECT job, comm, seq FROM kept WHERE critical GROUP BY ALL
            HAVING sum(CASE WHEN seen THEN lost_ns ELSE least(lost_ns, paused_ns) END)
                >= $share * any_value(all_lost_ns)),
        sharers AS (
            SELECT s.job, s.comm, s.seq, s.started_ns AS at_ns, f.name AS flow, f.src_host AS node,
                row_number() OVER (ORDER BY f.bytes DESC) AS place,
                CASE WHEN f.src_host = s.src_host THEN s.src_host ELSE s.dst_host END AS host
            FROM late_steps s SEMI JOIN worst USING (job, comm, seq)
            ANTI JOIN reported USING (job, comm, seq)
            JOIN flow_sizes f ON (f.src_host = s.src_host OR f.dst_host = s.dst_host)
                AND NOT f.is_collective AND f.started_ns < s.ended_ns AND f.ended_ns > s.started_ns
            WHERE s.critical
            QUALIFY row_number() OVER (
                PARTITION BY s.job, s.comm, f.flow ORDER BY s.started_ns) = 1)
    """


def _in_the_way() -> str:
    """Collectives whose queues other flows fill, with the incast that most of these belong to.

    Who met only steps off the critical path is in the way where no parallel link is idle. The last
    port is shared by all who begin with a flow, reported or not.
    """
    return """
        others AS (
            SELECT c.job, c.comm, c.seq, c.flow AS number, c.name AS flow, c.src_host AS node,
                c.share AS part, c.score, c.place,
                count(*) OVER (PARTITION BY job, comm, seq) AS named
            FROM contributors c SEMI JOIN worst USING (job, comm, seq)),
        begun AS (
            SELECT a.flow AS number, a.dst_host AS host, list(b.flow) AS flows,
                count(*) AS senders
            FROM flow_sizes a JOIN flow_sizes b ON a.dst_host = b.dst_host AND NOT a.is_collective
                AND NOT b.is_collective
                AND coalesce(b.started_ns - a.started_ns BETWEEN 0 AND $together, true)
            GROUP BY a.flow, a.dst_host HAVING count(*) >= $senders),
        incasts AS (
            SELECT o.job, o.comm, o.seq, g.host, max(g.senders) AS senders,
                arg_max(g.flows, g.senders) AS flows
            FROM others o JOIN begun g ON list_contains(g.flows, o.number)
            GROUP BY o.job, o.comm, o.seq, g.host
            HAVING count(DISTINCT o.flow) * 2 > any_value(o.named)),
        crowded AS (
            SELECT o.job, o.comm, o.seq, any_value(i.host) AS host,
                any_value(i.senders) AS senders, any_value(i.flows) AS flows,
                CASE WHEN any_value(i.host) IS NULL THEN 'contention' ELSE 'incast' END AS cause
            FROM others o LEFT JOIN incasts i USING (job, comm, seq)
            SEMI JOIN (SELECT job, comm, seq FROM queues UNION SELECT job, comm, seq FROM sharers)
                USING (job, comm, seq)
            GROUP BY ALL
            HAVING bool_or(o.score > 0)
                OR (o.job, o.comm, o.seq) NOT IN (SELECT (job, comm, seq) FROM queues WHERE idle))
    """


def _found() -> str:
    """A row for each port, flow and host of each cause."""
    return """
        pausing AS (
            SELECT p.*, kind AS cause, label AS suspect, 0 AS place FROM ports p
            WHERE kind <> 'contention' AND share >= $share AND NOT (kind = 'deadlock' AND EXISTS (
                FROM loops g WHERE g.comm = p.comm AND list_has_all(g.ports, p.ports)))),
        found AS (
            SELECT * EXCLUDE (port), unnest(ports) AS port FROM pausing WHERE cause = 'deadlock'
            UNION ALL BY NAME
            SELECT * EXCLUDE (port), label AS port, host AS node FROM pausing
            WHERE cause <> 'deadlock'
            UNION ALL BY NAME
            SELECT o.*, 'backpressure' AS cause, p.suspect FROM others o
            JOIN pausing p USING (job, comm, seq) WHERE p.cause = 'backpressure'
            UNION ALL BY NAME
            SELECT *, 'loop' AS cause FROM loops WHERE flow IS NOT NULL
            UNION ALL BY NAME
            SELECT * EXCLUDE (flow), 'loop' AS cause,
                unnest(list_distinct(coalesce(astray, []) || ports)) AS port FROM loops
            UNION ALL BY NAME
            SELECT o.*, c.cause, c.host, c.senders
            FROM others o JOIN crowded c USING (job, comm, seq)
            UNION ALL BY NAME
            SELECT c.job, c.comm, c.seq, c.cause, f.name AS flow, f.src_host AS node,
                f.started_ns AS at_ns, 100000 AS place
            FROM crowded c JOIN flow_sizes f ON list_contains(c.flows, f.flow)
            ANTI JOIN others o ON o.comm = c.comm AND o.job = c.job AND o.number = f.flow
            UNION ALL BY NAME
            SELECT q.* EXCLUDE (port, place, lost_ns), label AS port, 1000000 AS place, c.cause
            FROM queues q JOIN crowded c USING (job, comm, seq) WHERE q.place = 1
            UNION ALL BY NAME
            SELECT * EXCLUDE (port, lost_ns), label AS port,
                CASE WHEN idle THEN 'imbalance' ELSE 'own_queue' END AS cause
            FROM queues ANTI JOIN crowded USING (job, comm, seq)
            UNION ALL BY NAME
            SELECT *, 'shared_link' AS cause FROM sharers),
        at_ends AS (
            SELECT job, comm, seq, cause, 'ends' AS suspect, side, node, nic,
                tor_port AS port, CASE WHEN cause = 'sender' THEN rank END AS rank,
                CASE cause WHEN 'paused_sender' THEN rx_pauses WHEN 'marked' THEN notified
                    WHEN 'resent' THEN repeats ELSE tx_pauses END AS counted,
                CASE cause WHEN 'paused_sender' THEN rx_paused_ns ELSE tx_paused_ns END
                    AS paused_ns,
                CASE side WHEN 'sender' THEN tx_full ELSE rx_full END AS used, own_bytes_per_s,
                queue_bytes, lost_ns, started_ns AS at_ns,
                row_number() OVER (PARTITION BY job, comm ORDER BY paused_ns DESC NULLS LAST,
                    counted DESC NULLS LAST, side, excess_ns DESC) AS place
            FROM (SELECT *, unnest(shows) AS cause FROM late_ends WHERE chosen))
    """


@relation(
    "network_causes",
    reads=["critical_steps", "late_steps"],
    columns=[
        "job comm",
        ("seq", "BIGINT", "", "of its collectives the one that lost most"),
        ("suspect", "VARCHAR", "", "the port that pauses come from; else flows or ends"),
        (
            "cause",
            "VARCHAR",
            "",
            "of a port: deadlock, storm, backpressure; of flows: loop, incast, contention, "
            "imbalance, own_queue, shared_link, unexplained; of ends: what late_ends shows",
        ),
        ("place", "BIGINT", "", "1: the first to act on"),
        ("flow", "VARCHAR", "", "a flow, by name"),
        ("node", "VARCHAR", "", "its sender; the host behind a port; of ends the host or switch"),
        ("nic", "VARCHAR", "", "of ends the NIC"),
        ("rank", "INTEGER", "", "of a sender that nothing held up: its rank"),
        ("port", "VARCHAR", "", "a port; of ends the switch port behind the NIC"),
        ("at_ns", "BIGINT", "ns", "since when"),
        ("lost_ns", "DOUBLE", "ns", "what the collective lost by a port that pauses; at its ends"),
        ("share", "DOUBLE", "ratio", "of what it lost at all roots: at these ports"),
        ("part", "DOUBLE", "ratio", "a flow's part of the queues that critical flows waited in"),
        "seen depth paused_label longest_ns",
        ("paused_ns", "DOUBLE", "ns", "all of its pauses during the step; of ends the NIC's"),
        ("ports", "VARCHAR[]", "", "from the step's path to the port; the cycle, the loop"),
        ("astray", "VARCHAR[]", "", "of a loop the ports that lead away from the receiver"),
        "idle_label idle_packets",
        ("host", "VARCHAR", "", "the receiver of an incast; the host whose link is shared"),
        ("senders", "BIGINT", "flows", "how many of an incast begin together"),
        "side",
        ("counted", "HUGEINT", "", "its pause frames, notifications or packets sent again"),
        ("used", "DOUBLE", "ratio", "of its link's rate, within late steps"),
        "own_bytes_per_s queue_bytes",
    ],
    source="Vedrfolnir II-B (loops, load imbalance), III-B (critical path), III-D2 (signatures), "
    "IV-A (incast, PFC backpressure)",
    params={
        "share": Param(
            "30 %",
            "of what the critical path lost, at a port or at one end, and of that by what a NIC "
            "counted: a cause of less is not what made the collective late",
        ),
        "senders": Param(3, "two to one host are a collision; the paper's incasts have 3 to 8"),
        "together": Param("300 us", "one request or barrier begins an incast; else flows meet"),
        "clearly": "late_ends.clearly",
        "idle": Param("20 %", "of the port's packets: even hashing leaves no link that empty"),
    },
)
def network_causes() -> str:
    """Ports, flows and hosts that made each communicator's worst collective late."""
    return f"""
        WITH {_worst()}, {_placed()}, {_ports()}, {_others()},
        {_in_the_way()}, {_found()}
        SELECT * REPLACE (coalesce(suspect, 'flows') AS suspect) FROM found
        UNION ALL BY NAME FROM at_ends
        UNION ALL BY NAME
        SELECT job, comm, seq, 'flows' AS suspect, 'unexplained' AS cause, late_ns AS at_ns
        FROM worst ANTI JOIN found USING (job, comm) ANTI JOIN at_ends USING (job, comm)
        ANTI JOIN roots USING (job, comm, seq)
        WHERE late_ns IS NOT NULL AND lost_ns > $clearly * took_ns
    """
