"""What a rank sent in an operation as a whole, and how fast: Pulse's two metrics (6.2).

A collective is one operation on all members; a custom collective is a group call of Sends and
Recvs, of which only the set shows how fast its rank is. The actual communication time is that of
epochs with data to any peer: gaps, in which a rank waits for others, are left out.
"""

from __future__ import annotations

from oncall.evidence import relation


@relation(
    "rank_traffic",
    reads=["traffic"],
    empty_without=["traffic"],
    columns=[
        "job comm rank node kind",
        ("turn", "BIGINT", "", "the operation's number; of p2p the how many-th call on it"),
        ("seq", "BIGINT", "", "its (first) operation number"),
        "op",
        ("is_custom", "BOOLEAN", "", "several Sends or Recvs of one group call"),
        ("peers", "INTEGER", "", "to whom it sends"),
        ("called_ns", "BIGINT", "ns", "when the host called, on the console's clock"),
        ("started_ns", "BIGINT", "ns", "when data began to flow, on the console's clock"),
        ("ended_ns", "BIGINT", "ns", "when it had been sent; NULL: not over"),
        ("error_ns", "BIGINT", "ns", "by which the clock may be off"),
        "active_ns bytes expected_bytes",
        ("received_bytes", "BIGINT", "bytes", "that its Recvs of the group call ask for"),
        ("rate_bytes_per_s", "DOUBLE", "bytes/s", "volume over actual communication time"),
        ("complete", "BOOLEAN", "", "all volumes were sent; NULL: events were lost"),
        "undercount epoch_ns",
    ],
    source="Pulse 6.2",
)
def rank_traffic() -> str:
    """Each operation, or group call, of each rank with what it sent in all."""
    return """
        WITH clock AS (
            SELECT DISTINCT ON (node) node, offset_ns, error_ns FROM clocks
            ORDER BY node, at_ns DESC, offset_ns),
        calls AS (
            SELECT job, comm, kind, seq, rank, op, min(called_ns) AS called_ns
            FROM operations GROUP BY ALL),
        -- Where many send to one, each makes a single Send, and yet they are one custom collective.
        gathering AS (
            SELECT job, comm, max(senders) > 2 AS gathers FROM (
                SELECT job, comm, peer, count(DISTINCT rank) AS senders FROM traffic
                WHERE group_id IS NOT NULL GROUP BY ALL) GROUP BY ALL),
        received AS (
            -- What goes to the rank itself is not sent, but worked on like the rest.
            SELECT job, comm, rank, group_id, sum(bytes) AS received_bytes FROM operations
            WHERE op = 'Recv' AND group_id IS NOT NULL GROUP BY ALL),
        summed AS (
            SELECT t.job, t.comm, t.rank, any_value(t.node) AS node, t.kind, min(t.seq) AS seq,
                any_value(t.op) AS op, t.group_id IS NOT NULL AND (count(*) > 1
                    OR coalesce(any_value(x.gathers), false)) AS is_custom,
                count(DISTINCT t.peer) AS peers, min(c.called_ns) AS called_ns,
                min(t.started_ns) AS started_ns,
                CASE WHEN count(t.ended_ns) = count(*) THEN max(t.ended_ns) END AS ended_ns,
                -- A node that does not tell it: no less than the longest of its lanes.
                coalesce(max(t.rank_active_ns), max(t.active_ns)) AS active_ns,
                sum(t.bytes) AS bytes, sum(t.expected_bytes) AS expected_bytes,
                any_value(r.received_bytes) AS received_bytes,
                bool_and(t.complete) AS complete, bool_or(t.undercount) AS undercount,
                max(t.epoch_ns) AS epoch_ns
            FROM traffic t LEFT JOIN calls c USING (job, comm, kind, seq, rank, op)
            LEFT JOIN received r USING (job, comm, rank, group_id)
            LEFT JOIN gathering x USING (job, comm)
            GROUP BY t.job, t.comm, t.rank, t.kind, t.group_id,
                CASE WHEN t.group_id IS NULL THEN t.seq END)
        SELECT s.* REPLACE (
                called_ns - coalesce(offset_ns, 0) AS called_ns,
                started_ns - coalesce(offset_ns, 0) AS started_ns,
                ended_ns - coalesce(offset_ns, 0) AS ended_ns),
            CASE kind WHEN 'coll' THEN seq ELSE row_number() OVER (
                PARTITION BY job, comm, rank, kind ORDER BY coalesce(called_ns, started_ns), seq)
                END AS turn,
            error_ns, bytes * 1e9 / nullif(active_ns, 0) AS rate_bytes_per_s
        FROM summed s LEFT JOIN clock USING (node)
    """
