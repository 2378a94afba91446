"""Which ranks stopped sending in the middle of an operation that every rank began (Pulse 7.2.3)."""

from __future__ import annotations

from oncall.evidence import Param, relation


@relation(
    "short_lanes",
    reads=["traffic"],
    optional=["rank_traffic", "open_sends", "missing_hosts"],
    empty_without=["open_sends"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("comm", "UBIGINT", "", "communicator"),
        ("kind", "VARCHAR", "", "coll or p2p"),
        ("turn", "BIGINT", "", "the operation's number; of p2p the how many-th call on it"),
        ("seq", "BIGINT", "", "its operation number"),
        ("op", "VARCHAR", "", "operation"),
        ("at_ns", "BIGINT", "ns", "when its first member began, on the console's clock"),
        ("rank", "INTEGER", "", "sending rank"),
        ("node", "VARCHAR", "", "its host"),
        ("peer", "INTEGER", "", "to whom it sends"),
        ("bytes", "BIGINT", "bytes", "sent to that peer"),
        ("complete", "BOOLEAN", "", "all of it"),
        ("source", "VARCHAR", "", "what measured it"),
        ("rank_bytes", "BIGINT", "bytes", "what the rank sent in all"),
        ("least_bytes", "BIGINT", "bytes", "the least that a member sent in all"),
    ],
    source="Pulse 7.2.3",
)
def short_lanes() -> str:
    """The volume sent by each rank to each peer in the first open operation that all have begun."""
    return """
        WITH whole AS (
            -- Of two, the one that waits for the other's call looks alike.
            SELECT * FROM open_sends r WHERE begun = members AND members > 1
                AND (kind = 'coll' OR members > 2
                     OR NOT EXISTS (FROM missing_hosts h WHERE h.job = r.job))
            QUALIFY at_ns = min(at_ns) OVER (PARTITION BY job)),
        lanes AS (
            SELECT t.job, t.comm, t.kind, t.seq, t.rank, t.peer, t.bytes,
                coalesce(t.complete, false) AS complete, t.source, w.turn, w.op, w.at_ns,
                w.bytes AS rank_bytes, w.node
            FROM whole w JOIN rank_traffic r USING (job, comm, kind, turn, rank)
            JOIN traffic t
                ON t.job = w.job AND t.comm = w.comm AND t.kind = w.kind AND t.rank = w.rank
                AND (t.seq = r.seq OR t.group_id = (
                    SELECT any_value(g.group_id) FROM traffic g
                    WHERE g.job = r.job AND g.comm = r.comm AND g.kind = r.kind
                        AND g.rank = r.rank AND g.seq = r.seq)))
        SELECT *, min(rank_bytes) OVER (PARTITION BY job, comm, kind, turn) AS least_bytes
        FROM lanes
    """


@relation(
    "stopped_sends",
    reads=["short_lanes", "members"],
    optional=["missing_hosts"],
    empty_without=["short_lanes"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("comm", "UBIGINT", "", "communicator"),
        ("seq", "BIGINT", "", "the operation's number; of p2p the how many-th call on it"),
        ("op", "VARCHAR", "", "operation"),
        ("rank", "INTEGER", "", "who stopped sending, or may have"),
        ("node", "VARCHAR", "", "its host"),
        ("gpu", "INTEGER", "", "its GPU"),
        ("nic", "VARCHAR", "", "its NIC"),
        ("bytes", "HUGEINT", "bytes", "what it sent, or received as well if it may be either end"),
        ("at_ns", "BIGINT", "ns", "when the first member began, on the console's clock"),
        ("ends", "BIGINT", "ranks", "among how many it is one"),
        ("suspect", "VARCHAR", "", "the rank, or one of these, as a sentence names it"),
    ],
    source="Pulse 7.2.3",
    params={
        "same_volume": Param(
            "2 MiB", "completed volumes that differ by less than a chunk in flight are equal"
        ),
    },
)
def stopped_sends() -> str:
    """The rank that sent least in an operation that every rank began."""
    return """
        -- A NIC's own count is least where it is down; where completions are counted, the one
        -- before it around the ring is as short.
        WITH low AS (
            SELECT * FROM short_lanes WHERE kind = 'coll' AND rank_bytes <= least_bytes
                + CASE WHEN source = 'dpa' THEN 0 ELSE $same_volume END),
        in_collectives AS (
            SELECT l.job, l.comm, l.seq, l.op, l.rank, l.rank_bytes AS bytes, l.at_ns
            FROM low l
            QUALIFY count(*) OVER (PARTITION BY l.job, l.comm) = 1 OR NOT EXISTS (
                FROM low s WHERE s.job = l.job AND s.comm = l.comm AND s.rank = l.peer)),
        -- Between two, either end may have failed.
        ends AS (
            SELECT job, comm, turn, op, at_ns, unnest([rank, peer]) AS rank, complete, bytes
            FROM short_lanes WHERE kind = 'p2p'),
        each AS (
            SELECT job, comm, any_value(op) AS op, rank,
                count(*) FILTER (NOT complete) / count(*) AS open, sum(bytes) AS bytes,
                min(at_ns) AS at_ns, min(turn) AS seq
            FROM ends GROUP BY job, comm, rank),
        shortest AS (
            FROM each QUALIFY rank() OVER (PARTITION BY job, comm ORDER BY open DESC, bytes) = 1),
        found AS (
            SELECT job, comm, seq, op, rank, bytes, at_ns, 1 AS ends FROM in_collectives
            UNION ALL
            SELECT job, comm, seq, op, rank, bytes, at_ns, count(*) OVER (PARTITION BY job, comm)
            FROM shortest)
        SELECT f.*, m.node, m.gpu, m.nic,
            CASE WHEN f.ends > 1
                THEN 'one of ranks ' || array_to_string(list(f.rank) OVER one, ' and ')
                ELSE 'rank ' || f.rank END AS suspect
        FROM found f LEFT JOIN members m USING (job, comm, rank)
        WHERE NOT EXISTS (FROM missing_hosts a WHERE a.job = f.job AND a.at_ns < f.at_ns)
        WINDOW one AS (PARTITION BY f.job, f.comm ORDER BY f.rank
            ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)
    """
