"""What the NICs at both ends of a collective's late flows counted during the delay.

This is the first edge of the provenance graph as hosts see it; without switch data it is the only
known one. A switch without buffer space makes a sender's NIC pause (it *receives* pause frames). A
host that takes data in too slowly pauses its switch (its NIC *sends* them). A shorter queue marks
packets, and the sender is notified. Counters say nothing about moments between two readings, so a
reading that overlaps a late step counts completely. Only the load of the link is taken from
readings that lie within a late step.

Where steps are not known, whole flows are: each is compared with the best time that the same
message ever took, so line rates do not matter. In a pipelined ring all flows last as long as the
slowest, so times do not show which flow made the others wait; the NICs' counters may.

A switch whose shell is all there is counts pauses, too: one that pauses others and is not paused
itself is where the pauses begin. It is read seldom, so this works for lasting causes only.
"""

from __future__ import annotations

from oncall.evidence import Param, relation

_COLUMNS = [
    "job comm seq",
    ("took_ns", "BIGINT", "ns", "the collective"),
    ("lost_ns", "DOUBLE", "ns", "what it lost on its critical path; or its latest flow"),
    ("side", "VARCHAR", "", "sender, receiver, elsewhere (a host that paused others), switch"),
    ("node", "VARCHAR", "", "the host at this end, or the switch"),
    ("nic", "VARCHAR", "", "its NIC, or the switch's port"),
    ("tor_port", "VARCHAR", "", "the switch port behind it, where known"),
    ("rank", "INTEGER", "", "the rank at this end"),
    ("peer", "INTEGER", "", "the rank at the other end of the latest step"),
    ("step", "INTEGER", "", "the latest step of its flows; NULL: only its whole flows are known"),
    ("started_ns", "BIGINT", "ns", "start of that step"),
    ("exec_ns", "BIGINT", "ns", "what that step took"),
    ("excess_ns", "DOUBLE", "ns", "what its late steps took too long, summed"),
    ("own_bytes_per_s", "DOUBLE", "bytes/s", "how fast its late steps went; of whole flows: NULL"),
    ("tx_full", "DOUBLE", "ratio", "share of its link used to send, within late steps"),
    ("rx_full", "DOUBLE", "ratio", "share of its link used to receive"),
    ("tx_others", "DOUBLE", "ratio", "share of its link that others sent over then, at least"),
    ("rx_others", "DOUBLE", "ratio", "share of its link that others' data took, at least"),
    ("link_bytes_per_s", "BIGINT", "bytes/s", "rate of its link"),
    ("seen_ns", "HUGEINT", "ns", "length of the NIC's readings that meet them"),
    ("rx_pauses", "HUGEINT", "frames", "pause frames received; NULL: not counted"),
    ("rx_paused_ns", "DOUBLE", "ns", "it was paused; NULL: not counted"),
    ("tx_pauses", "HUGEINT", "frames", "pause frames sent"),
    ("tx_paused_ns", "DOUBLE", "ns", "it made its switch pause"),
    ("queue_bytes", "BIGINT", "bytes", "deepest queue of a switch's port; NULL: not reported"),
    ("notified", "HUGEINT", "packets", "congestion notifications (CNPs) that it handled"),
    ("repeats", "HUGEINT", "packets", "packets retransmitted, or out of sequence"),
    (
        "shows",
        "VARCHAR[]",
        "",
        "what its counters say of the delay: hung_receiver, slow_receiver, full_link, "
        "pausing_host, pausing_switch, paused_sender, marked, resent; or that it is the sender",
    ),
    (
        "chosen",
        "BOOLEAN",
        "",
        "much was lost at this end, of the collective that stands for its communicator's: of those "
        "without a root in the network and traced the one that lost most, else the one that lost "
        "most of those whose NICs show a cause",
    ),
]


def _whole_flows() -> str:
    """Late flows between hosts, of each communicator's collectives that lost most."""
    return """
        clock AS (
            SELECT DISTINCT ON (node) node, offset_ns FROM clocks
            ORDER BY node, at_ns DESC, offset_ns),
        best AS (
            SELECT job, comm, rank, peer, bytes,
                quantile_disc(ended_ns - started_ns, $best) AS best_ns
            FROM op_traffic WHERE kind = 'coll' AND peer IS NOT NULL AND ended_ns IS NOT NULL
            GROUP BY ALL),
        sent AS (
            SELECT t.job, t.comm, t.seq, t.rank AS src, t.peer AS dst, t.nic,
                t.started_ns - coalesce(c.offset_ns, 0) AS started_ns,
                t.ended_ns - coalesce(c.offset_ns, 0) AS ended_ns,
                t.ended_ns - t.started_ns AS took_ns, took_ns - b.best_ns AS excess_ns,
                coalesce(a.node, t.node) AS src_host, p.node AS dst_host, b.best_ns
            FROM op_traffic t JOIN best b USING (job, comm, rank, peer, bytes)
            LEFT JOIN processes a ON a.job = t.job AND a.rank = t.rank
            LEFT JOIN processes p ON p.job = t.job AND p.rank = t.peer
            LEFT JOIN clock c ON c.node = coalesce(a.node, t.node)
            WHERE t.kind = 'coll' AND t.ended_ns IS NOT NULL AND NOT coalesce(t.undercount, false)
                AND coalesce(a.node, t.node) IS DISTINCT FROM p.node),
        worst AS (
            SELECT job, comm, seq, max(took_ns) AS took_ns, max(excess_ns) AS lost_ns FROM sent
            GROUP BY job, comm, seq
            QUALIFY row_number() OVER (
                PARTITION BY job, comm ORDER BY max(excess_ns) DESC, seq) <= $most_rounds)
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
            SELECT job, comm, seq, true, false, w.took_ns, w.lost_ns, src, dst, NULL, src_host,
                dst_host, nic, started_ns, ended_ns, excess_ns, NULL
            FROM sent s JOIN worst w USING (job, comm, seq)
            ANTI JOIN late_steps USING (job, comm, seq)
            WHERE s.excess_ns > $late * s.best_ns),
        own AS (
            SELECT job, rank, any_value(nic) AS nic FROM ranks GROUP BY ALL HAVING count(nic) = 1),
        ends AS (
            SELECT e.* REPLACE (coalesce(e.nic, o.nic) AS nic) FROM (
                SELECT *, 'sender' AS side, src_host AS node, src AS rank, dst AS peer FROM late
                UNION ALL
                SELECT * REPLACE (NULL AS nic), 'receiver', dst_host, dst, src FROM late) e
            LEFT JOIN own o ON o.job = e.job AND o.rank = e.rank)
    """


def _sums() -> str:
    """The readings that meet an end's late transfers, on the common clock, summed."""
    return """
        counted AS (
            SELECT r.* REPLACE (r.at_ns - coalesce(c.offset_ns, 0) AS at_ns,
                    r.since_ns - coalesce(c.offset_ns, 0) AS since_ns),
                rx_paused * took_ns AS rx_paused_ns, tx_paused * took_ns AS tx_paused_ns,
                coalesce(retransmits, timeouts, out_of_sequence) IS NOT NULL AS counts_repeats,
                coalesce(retransmits, 0) + coalesce(timeouts, 0) + coalesce(out_of_sequence, 0)
                    AS again
            FROM nic_rates r LEFT JOIN clock c USING (node)),
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
                sum(cnp_handled) AS notified, sum(again) FILTER (counts_repeats) AS repeats,
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


def _weighed() -> str:
    """The ends with their counters, and which of these explain what was lost there."""
    return """
        tors AS (
            SELECT host, any_value(switch || 'P' || port) AS tor_port FROM (
                SELECT a AS host, b AS switch, b_port AS port FROM links
                UNION SELECT b, a, a_port FROM links)
            GROUP BY host HAVING count(*) = 1),
        placed AS (
            SELECT s.*, coalesce(a.tor_port, b.tor_port) AS tor_port,
                e.* EXCLUDE (job, comm, seq, side, node),
                s.tx_within / s.room_within AS tx_full, s.rx_within / s.room_within AS rx_full,
                (s.tx_within / e.steps_ns - e.own_bytes_per_s) / s.link_bytes_per_s AS tx_others,
                (s.rx_within / e.steps_ns - e.own_bytes_per_s) / s.link_bytes_per_s AS rx_others,
                $share * e.excess_ns AS enough_ns,
                greatest(enough_ns, CASE WHEN e.whole THEN $paused * s.seen_ns END) AS pauses_ns,
                e.lost_ns > $least_lost * e.took_ns AND e.excess_ns >= $share * e.lost_ns
                    AND (s.job, s.comm, s.seq) NOT IN (
                        SELECT (job, comm, seq) FROM network_roots) AS weighs
            FROM sums s JOIN steps e ON e.job = s.job AND e.comm = s.comm AND e.seq = s.seq
                AND e.side = s.side AND (e.node = s.node OR s.side = 'elsewhere')
            LEFT JOIN tors a ON a.host = s.node || '/' || s.nic
            LEFT JOIN tors b ON b.host = s.node),
        weighed AS (
            SELECT *,
                -- Pauses that are counted in frames only have no duration and cannot be weighed.
                coalesce(rx_pauses > 0 AND coalesce(rx_paused_ns >= pauses_ns, NOT whole), false)
                    AS stopped,
                coalesce(tx_pauses > 0 AND coalesce(tx_paused_ns >= pauses_ns, NOT whole), false)
                    AS stops,
                coalesce(notified * $notice
                    >= greatest(enough_ns, CASE WHEN whole THEN $share * seen_ns END), false)
                    AS slowed,
                coalesce(repeats * $repeat_cost >= pauses_ns, false) AS repeated,
                coalesce(CASE side WHEN 'sender' THEN tx_full >= $full AND tx_others >= $others
                    WHEN 'receiver' THEN rx_full >= $full AND rx_others >= $others END, false)
                    AS shared,
                -- Pauses spread against the traffic: one host's NIC can stop others that send it
                -- nothing.
                bool_or(weighs AND side = 'sender' AND stopped)
                    OVER (PARTITION BY job, comm, seq) AS held
            FROM placed)
    """


def _chosen() -> str:
    """The collective that stands for its communicator's."""
    return """
        candidates AS (
            SELECT job, comm, seq, any_value(traced) AS traced, any_value(took_ns) AS took_ns,
                any_value(lost_ns) AS lost_ns, coalesce(bool_or(CASE side
                    WHEN 'sender' THEN stopped OR slowed OR repeated OR shared
                    WHEN 'receiver' THEN stops OR repeated OR shared END), false) AS shown,
                coalesce(bool_or(rx_pauses IS NOT NULL) FILTER (side = 'sender')
                    AND bool_or(tx_pauses IS NOT NULL) FILTER (side = 'receiver'), false)
                    AS both_known
            FROM weighed WHERE weighs GROUP BY job, comm, seq),
        rounds AS (SELECT job, comm, count(*) AS known FROM lost GROUP BY job, comm),
        chosen AS (
            SELECT job, comm, seq FROM (
                SELECT * FROM candidates LEFT JOIN rounds USING (job, comm)
                QUALIFY row_number() OVER (PARTITION BY job, comm
                        ORDER BY traced DESC, traced OR shown DESC, lost_ns DESC) = 1
                    AND (traced OR count(*) FILTER (shown) OVER (PARTITION BY job, comm)
                        >= least($rounds, coalesce(known, $rounds))))
            WHERE shown OR (traced AND both_known AND lost_ns > $clearly * took_ns))
    """


def _switches() -> str:
    """Switches that paused others around a collective and were paused by nobody: there pauses begin
    if they held a sender up. Of a switch the port with the deepest queue."""
    return """
        spans AS (
            SELECT job, comm, seq, min(started_ns) AS started_ns,
                max(started_ns + exec_ns) AS ended_ns
            FROM weighed WHERE side <> 'elsewhere' AND held GROUP BY ALL),
        queues AS (
            SELECT s.job, s.comm, s.seq, q.node, q.nic, max(q.queue_bytes) AS queue_bytes
            FROM spans s JOIN nic_priorities q ON q.at_ns > s.started_ns GROUP BY ALL),
        switches AS (
            SELECT s.job, s.comm, s.seq, 'switch' AS side, r.node, s.started_ns,
                arg_max(r.nic, q.queue_bytes) AS nic, max(q.queue_bytes) AS queue_bytes,
                sum(r.pfc_rx_pause) AS rx_pauses, sum(r.pfc_tx_pause) AS tx_pauses,
                ['pausing_switch'] AS shows
            -- A switch's shell counts no bytes beside its pauses, a NIC always does.
            FROM spans s JOIN nic_rates r ON r.tx_bytes IS NULL
                AND r.at_ns > s.started_ns AND r.since_ns < s.ended_ns
            ANTI JOIN ranks h ON h.node = r.node
            LEFT JOIN queues q ON q.job = s.job AND q.comm = s.comm AND q.seq = s.seq
                AND q.node = r.node AND q.nic = r.nic
            GROUP BY s.job, s.comm, s.seq, s.started_ns, r.node
            HAVING sum(r.pfc_tx_pause) > 0 AND sum(r.pfc_rx_pause) = 0)
    """


def _shows() -> str:
    """What an end's counters say, what weighs most first."""
    return """list_filter([
        CASE WHEN side = 'receiver' AND stops AND tx_paused_ns > $without_end * seen_ns
            THEN 'hung_receiver' END,
        CASE WHEN side = 'receiver' AND stops THEN 'slow_receiver' END,
        CASE WHEN shared THEN 'full_link' END,
        CASE WHEN side = 'elsewhere' AND stops AND held THEN 'pausing_host' END,
        CASE WHEN side = 'sender' AND stopped THEN 'paused_sender' END,
        CASE WHEN side = 'sender' AND slowed THEN 'marked' END,
        CASE WHEN side <> 'elsewhere' AND repeated THEN 'resent' END,
        CASE WHEN side = 'sender' THEN 'sender' END], lambda shown: shown IS NOT NULL)"""


@relation(
    "late_ends",
    reads=["late_steps", "nic_rates"],
    empty_without=["late_steps|op_traffic", "nic_rates"],
    columns=_COLUMNS,
    source="Vedrfolnir III-B, III-D1: e(p, p), from the hosts' side; Pulse 5.2; DCQCN; "
    "IEEE 802.1Qbb; SONiC `show pfc counters`, `show queue watermark`",
    params={
        "most_rounds": "late_steps.most_collectives",
        "best": "collective_steps.best",
        "late": "step_waits.late",
        "least_lost": "lost_time.negligible",
        "share": "network_causes.share",
        "paused": Param(
            "2 %",
            "of all the time of the readings, where flows are known as a whole only: of ten "
            "rounds in one reading, one is late",
        ),
        "notice": Param(
            "300 us",
            "a notification halves a rate at most, and half of the way back takes one period of "
            "that length (DCQCN)",
        ),
        "repeat_cost": Param(
            "20 us",
            "a round trip through a queue: the least that a packet costs which is sent again",
        ),
        "full": Param("85 %", "of a link's rate: headers and gaps between packets take the rest"),
        "others": Param(
            "15 %",
            "of the link's rate, the late step's time through: what others took, as far as "
            "readings within it cover it",
        ),
        "clearly": Param(
            "10 %",
            "of the collective's time: without a cause in sight, only what nobody would call "
            "scatter is worth a word",
        ),
        "without_end": Param(
            "80 %", "of the time: a host that is merely slow accepts some data between two pauses"
        ),
        "rounds": "lost_time.few",
    },
)
def late_ends() -> str:
    """The NICs at both ends of each late collective's critical flows, others that paused, and ports
    of switches.

    Where steps are known, of those on the critical path; else of all its late flows. What a switch
    reported of its queues needs no inference, so a collective with a root in the network is never
    chosen.
    """
    return f"""
        WITH {_whole_flows()}, {_late_transfers()}, {_sums()}, {_steps()}, {_weighed()},
        {_chosen()}, {_switches()}
        SELECT *, {_shows()} AS shows,
            weighs AND (job, comm, seq) IN (SELECT (job, comm, seq) FROM chosen) AS chosen
        FROM weighed
        UNION ALL BY NAME
        SELECT *, (job, comm, seq) IN (SELECT (job, comm, seq) FROM chosen) AS chosen FROM switches
    """
