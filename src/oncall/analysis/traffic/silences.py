"""Which ranks began the operation that the others are blocked in, when no rank sends any more.

A job that has been silent far longer than ever before stopped in its open operations. A rank that
began one of them sends or waits; a rank that did not begin never got there.
"""

from __future__ import annotations

from oncall.evidence import Param, relation


@relation(
    "silences",
    reads=["rank_traffic"],
    optional=["operations", "collectors"],
    empty_without=["rank_traffic"],
    columns=[
        ("job", "VARCHAR", "", "a job in which nobody begins to send any more"),
        ("silent_ns", "BIGINT", "ns", "since when"),
        ("times", "DOUBLE", "ratio", "... against the longest pause before"),
    ],
    source="Pulse 6.2",
    params={
        "stuck_after": Param("2 s", "nothing is sent by anyone for as long, and ..."),
        "pauses": Param(
            3, "... for this many times the longest pause before: a checkpoint is no hang"
        ),
    },
)
def silences() -> str:
    """Jobs in which nobody has begun to send for longer than ever before."""
    return """
        WITH begun AS (
            SELECT job, started_ns, started_ns - lag(started_ns) OVER (
                PARTITION BY job ORDER BY started_ns) AS pause_ns
            FROM rank_traffic WHERE started_ns IS NOT NULL),
        sent AS (
            SELECT job, max(started_ns) AS last_ns, max(pause_ns) AS longest_ns
            FROM begun GROUP BY job),
        seen AS (SELECT job, max(observed_ns) AS now_ns FROM operations GROUP BY job),
        looked AS (
            SELECT job, last_ns, longest_ns,
                coalesce(now_ns, (SELECT max(at_ns) FROM collectors)) AS now_ns
            FROM sent LEFT JOIN seen USING (job))
        SELECT job, now_ns - last_ns AS silent_ns, (now_ns - last_ns) / longest_ns AS times
        FROM looked
        WHERE now_ns - last_ns > greatest($stuck_after, $pauses * longest_ns)
    """


@relation(
    "open_sends",
    reads=["silences"],
    optional=["rank_traffic"],
    empty_without=["silences"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("comm", "UBIGINT", "", "communicator"),
        ("kind", "VARCHAR", "", "coll or p2p"),
        ("turn", "BIGINT", "", "the operation's number; of p2p the how many-th call on it"),
        ("seq", "BIGINT", "", "its (first) operation number"),
        ("op", "VARCHAR", "", "operation"),
        ("at_ns", "BIGINT", "ns", "when its first member began, on the console's clock"),
        ("rank", "INTEGER", "", "a member that has sent on the communicator"),
        ("node", "VARCHAR", "", "its host"),
        ("started_ns", "BIGINT", "ns", "when it began; NULL: it did not"),
        ("bytes", "BIGINT", "bytes", "sent"),
        ("over", "BOOLEAN", "", "it has sent all"),
        ("members", "BIGINT", "ranks", "how many members have sent on the communicator"),
        ("begun", "BIGINT", "ranks", "... and began this operation"),
    ],
    source="Pulse 6.2",
)
def open_sends() -> str:
    """The operations that a silent job has open, with each member that sends on their groups."""
    return """
        WITH unfinished AS (
            SELECT r.* FROM rank_traffic r JOIN silences USING (job)
            WHERE r.started_ns IS NOT NULL AND r.ended_ns IS NULL),
        senders AS (
            SELECT job, comm, rank, any_value(node) AS node
            FROM rank_traffic SEMI JOIN unfinished USING (job, comm)
            WHERE started_ns IS NOT NULL GROUP BY ALL),
        open AS (
            SELECT job, comm, kind, turn, min(started_ns) AS at_ns, any_value(op) AS op,
                min(seq) AS seq
            FROM unfinished GROUP BY ALL)
        SELECT o.*, s.rank, s.node, r.started_ns, r.bytes,
            coalesce(r.ended_ns IS NOT NULL, false) AS over,
            count(*) OVER one AS members, count(r.started_ns) OVER one AS begun
        FROM open o JOIN senders s USING (job, comm)
        LEFT JOIN rank_traffic r USING (job, comm, kind, turn, rank)
        WINDOW one AS (PARTITION BY o.job, o.comm, o.kind, o.turn)
    """


@relation(
    "missing_senders",
    reads=["open_sends"],
    empty_without=["open_sends"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("comm", "UBIGINT", "", "communicator"),
        ("rank", "INTEGER", "", "a member that did not begin the operation"),
        ("node", "VARCHAR", "", "its host"),
        ("op", "VARCHAR", "", "operation"),
        ("seq", "BIGINT", "", "its (first) operation number"),
        ("at_ns", "BIGINT", "ns", "when its first member began, on the console's clock"),
    ],
    source="Pulse 6.2",
)
def missing_senders() -> str:
    """Ranks that never began an open operation, unless they or their host are blocked elsewhere."""
    return """
        SELECT r.* FROM open_sends r
        WHERE r.started_ns IS NULL AND r.members > 2
            AND NOT EXISTS (
                FROM open_sends x WHERE x.job = r.job AND x.node = r.node
                    AND x.started_ns IS NOT NULL AND NOT x.over)
    """


@relation(
    "missing_hosts",
    reads=["missing_senders", "alike_ranks", "parallelism"],
    optional=["rank_traffic"],
    empty_without=["missing_senders"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("node", "VARCHAR", "", "a host whose ranks never began what others are blocked in"),
        ("op", "VARCHAR", "", "the first operation of that"),
        ("seq", "BIGINT", "", "its operation number"),
        ("comms", "BIGINT", "", "communicators concerned"),
        ("ranks", "BIGINT", "ranks", "its ranks that are missing"),
        ("at_ns", "BIGINT", "ns", "when the first other member began, on the console's clock"),
    ],
    source="Pulse 6.2; the order of what is missing: beyond the paper",
    params={
        "same_moment": Param("1 ms", "of what is missing closer together, neither is the first"),
    },
)
def missing_hosts() -> str:
    """The hosts that were the first not to begin an operation."""
    return """
        -- What is missing was due when ranks with the same work did it.
        WITH had AS (
            SELECT b.job, b.rank, coalesce(p.parallelism, 'none') AS role, b.kind, b.turn,
                b.started_ns, k.class
            FROM rank_traffic b LEFT JOIN parallelism p USING (job, comm)
            LEFT JOIN alike_ranks k USING (job, rank)
            WHERE b.started_ns IS NOT NULL),
        reached AS (
            SELECT job, rank, class, role, kind, max(turn) AS turn FROM had GROUP BY ALL),
        medians AS (
            SELECT job, class, role, kind, turn, median(started_ns) AS due_ns
            FROM had GROUP BY ALL),
        due AS (
            SELECT a.job, a.rank, a.node, min(m.due_ns) AS due_ns
            FROM (SELECT DISTINCT job, rank, node FROM missing_senders) a
            JOIN reached r USING (job, rank)
            JOIN medians m ON m.job = r.job AND m.class = r.class AND m.role = r.role
                AND m.kind = r.kind AND m.turn = r.turn + 1
            GROUP BY ALL),
        first_missing AS (
            SELECT job, node, min(due_ns) AS due_ns FROM due GROUP BY job, node
            QUALIFY min(due_ns) <= min(min(due_ns)) OVER (PARTITION BY job) + $same_moment)
        SELECT a.job, a.node, any_value(a.op) AS op, arg_min(a.seq, a.at_ns) AS seq,
            count(DISTINCT a.comm) AS comms, min(a.at_ns) AS at_ns,
            count(DISTINCT a.rank) AS ranks
        FROM missing_senders a
        WHERE NOT EXISTS (FROM first_missing f WHERE f.job = a.job)
            OR EXISTS (FROM first_missing f
                       WHERE f.job = a.job AND f.node IS NOT DISTINCT FROM a.node)
        GROUP BY ALL
    """


@relation(
    "stopped_hosts",
    reads=["missing_hosts", "members"],
    optional=["missing_senders", "operations"],
    empty_without=["missing_hosts"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("node", "VARCHAR", "", "the first host not to begin an operation"),
        ("rank", "INTEGER", "", "its rank that stopped; NULL: any of several"),
        ("gpu", "INTEGER", "", "its GPU"),
        ("op", "VARCHAR", "", "the operation"),
        ("seq", "BIGINT", "", "its operation number"),
        ("ranks", "BIGINT", "ranks", "ranks of the host that did not begin it"),
        ("at_ns", "BIGINT", "ns", "when the first other member began, on the console's clock"),
    ],
    source="Pulse 6.2, D.4",
)
def stopped_hosts() -> str:
    """Those hosts, with the rank whose own program got least far in what its ranks do together."""
    return """
        WITH calls AS (
            SELECT o.job, o.comm, o.rank, m.node, m.gpu, max(o.seq) AS seq
            FROM operations o JOIN members m USING (job, comm, rank)
            JOIN missing_hosts h USING (job, node)
            WHERE o.kind = 'coll' AND (
                SELECT count(DISTINCT n.node) FROM members n
                WHERE n.job = o.job AND n.comm = o.comm) = 1
            GROUP BY ALL),
        behind_inside AS (
            SELECT job, node, rank, gpu FROM calls
            QUALIFY seq < max(seq) OVER (PARTITION BY job, comm)
                AND count(*) FILTER (seq < (
                    SELECT max(c.seq) FROM calls c
                    WHERE c.job = calls.job AND c.comm = calls.comm))
                    OVER (PARTITION BY job, comm) = 1)
        SELECT h.*, coalesce(b.rank, CASE WHEN h.ranks = 1 THEN a.rank END) AS rank, b.gpu
        FROM missing_hosts h LEFT JOIN behind_inside b USING (job, node)
        LEFT JOIN (
            SELECT job, node, any_value(rank) AS rank FROM missing_senders GROUP BY ALL) a
            USING (job, node)
    """
