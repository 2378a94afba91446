"""Which ranks never began, or never finished, the operation that the others are blocked in, when no
rank sends any more (Pulse 6.2, 7.2.3).

A job that has been silent far longer than ever before stopped in its open operations. A rank that
began one of them sends or waits; a rank that did not begin never got there. Where all began, the
one that sent least stopped sending.
"""

from __future__ import annotations

from oncall.evidence import Param, relation


def _open_sends() -> str:
    """The operations that a silent job has open, with each member that sends on their groups."""
    return """
        began AS (
            SELECT job, started_ns, started_ns - lag(started_ns) OVER (
                PARTITION BY job ORDER BY started_ns) AS pause_ns
            FROM rank_traffic WHERE started_ns IS NOT NULL),
        looked AS (
            SELECT job, coalesce((SELECT max(observed_ns) FROM operations o WHERE o.job = b.job),
                    (SELECT max(at_ns) FROM collectors)) - max(started_ns) AS silent_ns,
                max(pause_ns) AS longest_ns
            FROM began b GROUP BY job),
        silences AS (
            SELECT job, silent_ns, silent_ns / longest_ns AS times FROM looked
            WHERE silent_ns > greatest($stuck_after, $pauses * longest_ns)),
        unfinished AS (
            SELECT r.* FROM rank_traffic r SEMI JOIN silences USING (job)
            WHERE r.started_ns IS NOT NULL AND r.ended_ns IS NULL),
        senders AS (
            SELECT job, comm, rank, any_value(node) AS node
            FROM rank_traffic SEMI JOIN unfinished USING (job, comm)
            WHERE started_ns IS NOT NULL GROUP BY ALL),
        open AS (
            SELECT job, comm, kind, turn, min(started_ns) AS at_ns, any_value(op) AS op,
                min(seq) AS seq
            FROM unfinished GROUP BY ALL),
        open_sends AS (
            SELECT o.*, s.rank, s.node, r.started_ns, r.bytes, r.seq AS own_seq,
                coalesce(r.ended_ns IS NOT NULL, false) AS over,
                count(*) OVER one AS members, count(r.started_ns) OVER one AS begun
            FROM open o JOIN senders s USING (job, comm)
            LEFT JOIN rank_traffic r USING (job, comm, kind, turn, rank)
            WINDOW one AS (PARTITION BY o.job, o.comm, o.kind, o.turn))
    """


def _hosts() -> str:
    """The hosts that were the first not to begin an operation, unless they are blocked elsewhere;
    with the rank whose own program got least far in what the ranks of the host do together."""
    return """
        missing AS (
            SELECT r.* FROM open_sends r
            WHERE r.started_ns IS NULL AND r.members > 2
                AND NOT EXISTS (
                    FROM open_sends x WHERE x.job = r.job AND x.node = r.node
                        AND x.started_ns IS NOT NULL AND NOT x.over)),
        missing_hosts AS (
            SELECT job, node, any_value(op) AS op, arg_min(seq, at_ns) AS seq,
                min(at_ns) AS at_ns, count(DISTINCT rank) AS ranks, any_value(rank) AS some_rank
            FROM missing GROUP BY job, node
            QUALIFY min(at_ns) <= min(min(at_ns)) OVER (PARTITION BY job) + $same_moment),
        calls AS (
            SELECT o.job, o.comm, o.rank, m.node, m.gpu, max(o.seq) AS seq
            FROM operations o JOIN members m USING (job, comm, rank)
            SEMI JOIN missing_hosts h ON h.job = m.job AND h.node = m.node
            WHERE o.kind = 'coll' AND (
                SELECT count(DISTINCT n.node) FROM members n
                WHERE n.job = o.job AND n.comm = o.comm) = 1
            GROUP BY ALL),
        behind_inside AS (
            SELECT job, node, rank, gpu
            FROM (SELECT *, seq < max(seq) OVER (PARTITION BY job, comm) AS behind FROM calls)
            QUALIFY behind AND count(*) FILTER (behind) OVER (PARTITION BY job, comm) = 1),
        stopped_hosts AS (
            SELECT h.* EXCLUDE (some_rank),
                coalesce(b.rank, CASE WHEN h.ranks = 1 THEN h.some_rank END) AS rank, b.gpu
            FROM missing_hosts h LEFT JOIN behind_inside b USING (job, node))
    """


def _senders() -> str:
    """The rank that sent least in the first open operation that all have begun; between two ranks
    either end may have failed."""
    return """
        whole AS (
            -- Of two, the one that waits for the other's call looks alike.
            SELECT * FROM open_sends r WHERE begun = members AND members > 1
                AND (kind = 'coll' OR members > 2
                     OR NOT EXISTS (FROM missing_hosts h WHERE h.job = r.job))
            QUALIFY at_ns = min(at_ns) OVER (PARTITION BY job)),
        first_lanes AS (
            SELECT job, comm, kind, seq AS own_seq, rank, any_value(group_id) AS group_id
            FROM traffic GROUP BY ALL),
        lanes AS (
            SELECT w.job, w.comm, w.kind, w.turn, w.op, w.at_ns, w.rank, w.bytes AS rank_bytes,
                t.peer, t.bytes, coalesce(t.complete, false) AS complete, t.source, t.seq,
                min(w.bytes) OVER (PARTITION BY w.job, w.comm, w.kind, w.turn) AS least_bytes
            FROM whole w JOIN first_lanes f USING (job, comm, kind, own_seq, rank)
            JOIN traffic t
                ON t.job = w.job AND t.comm = w.comm AND t.kind = w.kind AND t.rank = w.rank
                AND (t.seq = w.own_seq OR t.group_id = f.group_id)),
        -- A NIC's own count is least where it is down; where completions are counted, the one
        -- before it around the ring is as short.
        low AS (
            SELECT * FROM lanes WHERE kind = 'coll' AND rank_bytes <= least_bytes
                + CASE WHEN source = 'dpa' THEN 0 ELSE $same_volume END),
        in_collectives AS (
            FROM low l
            QUALIFY count(*) OVER (PARTITION BY l.job, l.comm) = 1 OR NOT EXISTS (
                FROM low s WHERE s.job = l.job AND s.comm = l.comm AND s.rank = l.peer)),
        ends AS (
            SELECT job, comm, turn, op, at_ns, unnest([rank, peer]) AS rank, complete, bytes
            FROM lanes WHERE kind = 'p2p'),
        shortest AS (
            SELECT job, comm, any_value(op) AS op, rank, sum(bytes) AS bytes, min(at_ns) AS at_ns,
                min(turn) AS seq
            FROM ends GROUP BY job, comm, rank
            QUALIFY rank() OVER (PARTITION BY job, comm
                ORDER BY count(*) FILTER (NOT complete) / count(*) DESC, sum(bytes)) = 1),
        short AS (
            SELECT job, comm, seq, op, rank, rank_bytes AS bytes, at_ns, 1 AS ends
            FROM in_collectives
            UNION ALL
            SELECT job, comm, seq, op, rank, bytes, at_ns, count(*) OVER (PARTITION BY job, comm)
            FROM shortest),
        stopped_senders AS (
            SELECT f.*, m.node, m.gpu, m.nic, list(f.rank) OVER (PARTITION BY f.job, f.comm
                ORDER BY f.rank ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS either
            FROM short f LEFT JOIN members m USING (job, comm, rank)
            WHERE NOT EXISTS (FROM missing_hosts a WHERE a.job = f.job AND a.at_ns < f.at_ns))
    """


@relation(
    "stopped_traffic",
    reads=["rank_traffic", "members"],
    empty_without=["rank_traffic"],
    columns=[
        "job",
        ("suspect", "VARCHAR", "", "the host, the rank, or either of two"),
        ("code", "VARCHAR", "", "never_began; or sent_least, either_end: in an operation that "
         "every rank began"),
        "node",
        ("rank", "INTEGER", "", "the rank that stopped; NULL: any of several"),
        "gpu nic comm op",
        ("seq", "BIGINT", "", "its number; of p2p the how many-th call on it"),
        ("bytes", "HUGEINT", "bytes", "what it sent, or received as well if it may be either end"),
        ("ranks", "BIGINT", "ranks", "ranks of the host that did not begin it"),
        ("at_ns", "BIGINT", "ns", "when the first other member began, on the console's clock"),
        ("silent_ns", "BIGINT", "ns", "for how long nobody has begun to send"),
        ("times", "DOUBLE", "ratio", "... against the longest pause before"),
    ],
    source="Pulse 6.2, 7.2.3, D.4; the order of what is missing: beyond the paper",
    params={
        "stuck_after": "progress_symptoms.blink",
        "pauses": Param(3, "... for this many times the longest before: a checkpoint is no hang"),
        "same_moment": Param("1 ms", "of what is missing closer together, neither is the first"),
        "same_volume": "collective_steps.most_step",
    },
)  # fmt: skip
def stopped_traffic() -> str:
    """The hosts and ranks in which a silent job stopped."""
    return f"""
        WITH {_open_sends()}, {_hosts()}, {_senders()},
        stopped AS (
            SELECT *, 'never_began' AS code, 'host ' || node AS suspect FROM stopped_hosts
            UNION ALL BY NAME
            SELECT * EXCLUDE (ends, either), if(ends > 1, 'either_end', 'sent_least') AS code,
                if(ends > 1, 'one of ranks ' || array_to_string(either, ' and '), 'rank ' || rank)
                    AS suspect
            FROM stopped_senders)
        SELECT s.*, silent_ns, times FROM stopped s JOIN silences USING (job)
    """
