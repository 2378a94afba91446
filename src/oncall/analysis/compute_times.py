"""How long ranks compute between what they send, seen from traffic alone (Pulse 6.2).

"When computation anomalies occur, the subsequent communication operator is the first to be
affected": it starts late. A rank starts late as well when what it works on came late; so time is
counted from the last thing that it sent or was sent. The rest is its own, and is compared with
that of ranks that do the same: the members of its data-parallel group, or else of the communicator.
"""

from __future__ import annotations

from oncall.evidence import relation


@relation(
    "alike_ranks",
    reads=["members"],
    optional=["parallelism"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("rank", "INTEGER", "", "global rank"),
        ("class", "UBIGINT", "", "ranks of one class do the same work: replicas of each other"),
    ],
    source="Pulse 5.2: node similarity",
)
def alike_ranks() -> str:
    """Ranks that do the same work on other data: members of one data-parallel group."""
    return """
        WITH replicas AS (
            SELECT m.job, m.rank, max_by(m.comm, p.size) AS class
            FROM members m JOIN parallelism p USING (job, comm)
            WHERE p.parallelism = 'dp' GROUP BY m.job, m.rank),
        others AS (
            SELECT m.job, m.rank, max_by(m.comm, p.size) AS class
            FROM members m JOIN parallelism p USING (job, comm) ANTI JOIN replicas USING (job, rank)
            WHERE p.parallelism IS DISTINCT FROM 'pp' GROUP BY m.job, m.rank)
        FROM replicas UNION ALL FROM others
    """


@relation(
    "compute_times",
    reads=["rank_traffic"],
    optional=["traffic", "clocks", "alike_ranks", "parallelism"],
    empty_without=["rank_traffic"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("rank", "INTEGER", "", "global rank"),
        ("node", "VARCHAR", "", "its host"),
        ("class", "UBIGINT", "", "ranks it is compared with"),
        ("comm", "UBIGINT", "", "communicator of the operation that follows"),
        ("turn", "BIGINT", "", "the operation that follows, as in rank_traffic"),
        ("started_ns", "BIGINT", "ns", "when that began to send"),
        ("own_ns", "BIGINT", "ns", "time since the rank last sent, or was sent, something"),
        (
            "work",
            "DOUBLE",
            "ratio",
            "what it was sent before, against its class: tokens to compute",
        ),
        ("times", "DOUBLE", "ratio", "own time for that work, against the median of its class"),
    ],
    source="Pulse 6.2, 7.2.4, 7.2.6",
)
def compute_times() -> str:
    """A rank's own time before each operation, and how that compares with ranks of its class."""
    return """
        WITH clock AS (
            SELECT DISTINCT ON (node) node, offset_ns FROM clocks ORDER BY node, at_ns DESC),
        arrived AS (
            SELECT t.job, t.peer AS rank, t.ended_ns - coalesce(c.offset_ns, 0) AS at_ns
            FROM traffic t LEFT JOIN clock c USING (node)
            WHERE t.ended_ns IS NOT NULL AND t.peer IS NOT NULL
            UNION ALL
            SELECT job, rank, ended_ns FROM rank_traffic WHERE ended_ns IS NOT NULL),
        begun AS (
            SELECT r.job, r.comm, r.rank, r.node, r.kind, r.turn, r.is_custom, r.started_ns,
                coalesce(p.parallelism, 'none') AS role,
                lag(r.received_bytes) OVER (
                    PARTITION BY r.job, r.comm, r.rank ORDER BY r.started_ns) AS received_bytes
            FROM rank_traffic r LEFT JOIN parallelism p USING (job, comm)
            WHERE r.started_ns IS NOT NULL),
        own AS (
            SELECT b.*, b.started_ns - a.at_ns AS own_ns
            FROM begun b ASOF JOIN arrived a
                ON a.job = b.job AND a.rank = b.rank AND b.started_ns >= a.at_ns),
        placed AS (
            SELECT own.*, coalesce(k.class, own.comm) AS class,
                CASE WHEN is_custom THEN received_bytes / nullif(median(received_bytes) OVER w, 0)
                    END AS work,
                median(own_ns) OVER w AS usual_ns, count(*) OVER w AS members
            FROM own LEFT JOIN alike_ranks k USING (job, rank)
            WINDOW w AS (PARTITION BY own.job, coalesce(k.class, own.comm), role, kind, turn))
        SELECT *, own_ns / nullif(usual_ns, 0) / coalesce(nullif(work, 0), 1) AS times
        FROM placed WHERE members > 1
    """
