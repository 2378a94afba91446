"""What the NICs at both ends of a collective's late flows counted during the delay.

This is the first edge of the provenance graph as hosts see it; without switch data it is the only
known one. A switch without buffer space makes a sender's NIC pause (it *receives* pause frames). A
host that takes data in too slowly pauses its switch (its NIC *sends* them). A shorter queue marks
packets, and the sender is notified. Counters say nothing about moments between two readings, so a
reading that overlaps a late step counts completely. Only the load of the link is taken from
readings that lie within a late step.
"""

from __future__ import annotations

from oncall.evidence import relation

END_COLUMNS = [
    ("job", "VARCHAR", "", "the job"),
    ("comm", "UBIGINT", "", "communicator"),
    ("seq", "BIGINT", "", "the collective"),
    ("whole", "BOOLEAN", "", "only its whole flows are known, not their steps"),
    ("traced", "BOOLEAN", "", "its steps were recorded by the sender"),
    ("took_ns", "BIGINT", "ns", "the collective"),
    ("lost_ns", "DOUBLE", "ns", "what it lost on its critical path; whole: its latest flow"),
    ("side", "VARCHAR", "", "sender, receiver; or elsewhere: a host that sent pauses then"),
    ("node", "VARCHAR", "", "the host at this end"),
    ("nic", "VARCHAR", "", "its NIC"),
    ("tor_port", "VARCHAR", "", "the switch port behind it, where known"),
    ("rank", "INTEGER", "", "the rank at this end"),
    ("peer", "INTEGER", "", "the rank at the other end of the latest step"),
    ("step", "INTEGER", "", "the latest step of its flows; NULL: of the whole flow"),
    ("started_ns", "BIGINT", "ns", "start of that step"),
    ("exec_ns", "BIGINT", "ns", "what that step took"),
    ("excess_ns", "DOUBLE", "ns", "what its late steps took too long, summed"),
    ("own_bytes_per_s", "DOUBLE", "bytes/s", "how fast its late steps went; whole: NULL"),
    (
        "tx_full",
        "DOUBLE",
        "ratio",
        "share of its link used to send, within late steps; NULL: no data",
    ),
    ("rx_full", "DOUBLE", "ratio", "share of its link used to receive"),
    ("tx_others", "DOUBLE", "ratio", "share of its link that others sent over then, at least"),
    (
        "rx_others",
        "DOUBLE",
        "ratio",
        "share of its link that others' data took on arrival, at least",
    ),
    ("link_bytes_per_s", "BIGINT", "bytes/s", "rate of its link"),
    ("seen_ns", "HUGEINT", "ns", "length of the NIC's readings that meet them"),
    ("rx_pauses", "HUGEINT", "frames", "pause frames received; NULL: not counted"),
    ("rx_paused_ns", "DOUBLE", "ns", "it was paused; NULL: not counted"),
    ("tx_pauses", "HUGEINT", "frames", "pause frames sent"),
    ("tx_paused_ns", "DOUBLE", "ns", "it made its switch pause"),
    ("notified", "HUGEINT", "packets", "congestion notifications (CNPs) that it handled"),
    ("marked", "HUGEINT", "packets", "ECN-marked packets received"),
    ("repeats", "HUGEINT", "packets", "packets retransmitted, or out of sequence"),
]


def _switch_ports() -> str:
    """The switch port behind each host."""
    return """
        wires AS (
            SELECT a AS host, b AS switch, b_port AS port FROM links
            UNION SELECT b, a, a_port FROM links),
        tors AS (
            SELECT host, any_value(switch || 'P' || port) AS tor_port FROM wires
            GROUP BY host HAVING count(*) = 1)
    """


def _late_transfers() -> str:
    """Late steps on critical paths, or late flows, with the NIC at both ends."""
    return """
        lost AS (
            SELECT job, comm, seq, any_value(took_ns) AS took_ns, any_value(lost_ns) AS lost_ns
            FROM critical_steps GROUP BY ALL),
        late AS (
            SELECT job, comm, seq, false AS whole, s.traced, l.took_ns, l.lost_ns, s.src, s.dst,
                s.step, s.src_host, s.dst_host, NULL::VARCHAR AS nic, s.started_ns, s.ended_ns,
                s.excess_ns, s.bytes
            FROM late_steps s JOIN lost l USING (job, comm, seq) WHERE s.critical
            UNION ALL
            SELECT job, comm, seq, true, false, took_ns, lost_ns, src, dst, NULL, src_host,
                dst_host, nic, started_ns, ended_ns, excess_ns, NULL
            FROM late_flows ANTI JOIN late_steps USING (job, comm, seq)),
        own AS (
            SELECT job, rank, any_value(nic) AS nic FROM ranks GROUP BY ALL HAVING count(nic) = 1),
        ends AS (
            SELECT e.* REPLACE (coalesce(e.nic, o.nic) AS nic) FROM (
                SELECT *, 'sender' AS side, src_host AS node, src AS rank, dst AS peer FROM late
                UNION ALL
                SELECT * REPLACE (NULL AS nic), 'receiver', dst_host, dst, src FROM late) e
            LEFT JOIN own o ON o.job = e.job AND o.rank = e.rank)
    """


def _counted() -> str:
    """What each NIC counted between two readings, on the common clock."""
    return """
        clock AS (
            SELECT DISTINCT ON (node) node, offset_ns FROM clocks
            ORDER BY node, at_ns DESC, offset_ns),
        counted AS (
            SELECT r.* REPLACE (r.at_ns - coalesce(c.offset_ns, 0) AS at_ns,
                    r.since_ns - coalesce(c.offset_ns, 0) AS since_ns),
                rx_paused * took_ns AS rx_paused_ns, tx_paused * took_ns AS tx_paused_ns,
                coalesce(retransmits, timeouts, out_of_sequence) IS NOT NULL AS counts_repeats,
                coalesce(retransmits, 0) + coalesce(timeouts, 0) + coalesce(out_of_sequence, 0)
                    AS again
            FROM nic_rates r LEFT JOIN clock c USING (node))
    """


def _sums() -> str:
    """The readings that meet an end's late transfers, summed."""
    return """
        -- A reading that meets several late steps counts once.
        readings AS (
            SELECT e.job, e.comm, e.seq, e.side, e.node, r.nic, r.port, r.at_ns,
                bool_or(r.since_ns >= e.started_ns AND r.at_ns <= e.ended_ns) AS within
            FROM ends e JOIN counted r ON r.node = e.node AND coalesce(r.nic = e.nic, true)
                AND r.at_ns > e.started_ns AND r.since_ns < e.ended_ns
            GROUP BY ALL
            UNION
            SELECT DISTINCT l.job, l.comm, l.seq, 'elsewhere', r.node, r.nic, r.port, r.at_ns, false
            FROM late l JOIN counted r ON r.pfc_tx_pause > 0
                AND r.tx_bytes IS NOT NULL  -- of a switch's port, only pauses are counted
                AND r.at_ns > l.started_ns AND r.since_ns < l.ended_ns
            ANTI JOIN ends x ON x.job = l.job AND x.comm = l.comm AND x.seq = l.seq
                AND x.side = 'receiver' AND x.node = r.node AND coalesce(x.nic = r.nic, true)),
        sums AS (
            SELECT job, comm, seq, side, node, nic, sum(took_ns) AS seen_ns,
                sum(pfc_rx_pause) AS rx_pauses, sum(rx_paused_ns) AS rx_paused_ns,
                sum(pfc_tx_pause) AS tx_pauses, sum(tx_paused_ns) AS tx_paused_ns,
                sum(cnp_handled) AS notified, sum(ecn_marked) AS marked,
                sum(again) FILTER (counts_repeats) AS repeats,
                nullif(max(link_bytes_per_s), 0) AS link_bytes_per_s,
                sum(tx_bytes) FILTER (within) * 1e9 AS tx_within,
                sum(rx_bytes) FILTER (within) * 1e9 AS rx_within,
                nullif(sum(took_ns) FILTER (within) * max(link_bytes_per_s), 0) AS room_within
            FROM readings JOIN counted USING (node, nic, port, at_ns) GROUP BY ALL)
    """


def _steps() -> str:
    """The late steps of each end, summed, with the latest of them."""
    return """
        steps AS (
            SELECT job, comm, seq, side, node, any_value(whole) AS whole,
                bool_and(traced) AS traced, any_value(took_ns) AS took_ns,
                any_value(lost_ns) AS lost_ns, arg_max(rank, (excess_ns, -step, -rank)) AS rank,
                arg_max(peer, (excess_ns, -step, -rank)) AS peer,
                arg_max(step, (excess_ns, -step, -rank)) AS step,
                arg_max(started_ns, (excess_ns, -step, -rank)) AS started_ns,
                arg_max(ended_ns - started_ns, (excess_ns, -step, -rank)) AS exec_ns,
                sum(excess_ns) AS excess_ns,
                nullif(sum(ended_ns - started_ns), 0) AS steps_ns,
                sum(bytes) * 1e9 / steps_ns AS own_bytes_per_s
            FROM ends GROUP BY job, comm, seq, side, node
            UNION ALL
            SELECT job, comm, seq, 'elsewhere', NULL, any_value(whole), bool_and(traced),
                any_value(took_ns), any_value(lost_ns), NULL, NULL, NULL, min(started_ns), NULL,
                sum(excess_ns), NULL, NULL
            FROM late GROUP BY job, comm, seq)
    """


@relation(
    "late_ends",
    reads=["late_steps|late_flows", "nic_rates"],
    optional=["late_steps", "critical_steps", "late_flows", "links", "ranks", "clocks"],
    empty_without=["late_steps|late_flows", "nic_rates"],
    columns=END_COLUMNS,
    source="Vedrfolnir III-D1: e(p, p), from the hosts' side; DCQCN; IEEE 802.1Qbb",
)
def late_ends() -> str:
    """The NICs at both ends of each late collective's critical flows, and others that paused.

    Where steps are known, of those on the critical path; else of all its late flows.
    """
    return f"""
        WITH {_switch_ports()}, {_late_transfers()}, {_counted()}, {_sums()}, {_steps()}
        SELECT s.job, s.comm, s.seq, e.whole, e.traced, e.took_ns, e.lost_ns, s.side, s.node,
            s.nic, coalesce(a.tor_port, b.tor_port) AS tor_port, e.rank, e.peer, e.step,
            e.started_ns, e.exec_ns, e.excess_ns, e.own_bytes_per_s,
            s.tx_within / s.room_within AS tx_full, s.rx_within / s.room_within AS rx_full,
            (s.tx_within / e.steps_ns - e.own_bytes_per_s) / s.link_bytes_per_s AS tx_others,
            (s.rx_within / e.steps_ns - e.own_bytes_per_s) / s.link_bytes_per_s AS rx_others,
            s.link_bytes_per_s, s.seen_ns, s.rx_pauses, s.rx_paused_ns,
            s.tx_pauses, s.tx_paused_ns, s.notified, s.marked, s.repeats
        FROM sums s JOIN steps e ON e.job = s.job AND e.comm = s.comm AND e.seq = s.seq
            AND e.side = s.side AND (e.node = s.node OR s.side = 'elsewhere')
        LEFT JOIN tors a ON a.host = s.node || '/' || s.nic
        LEFT JOIN tors b ON b.host = s.node
    """
