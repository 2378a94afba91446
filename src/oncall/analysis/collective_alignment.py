"""What slowed together: inside the node only, across only, one rank, one rail, everything.

In TFD's worked case tensor parallelism is normal and data and pipeline parallelism are slow: that
leaves what lies between a GPU and the network. Only transfers count here, not waiting.
"""

from __future__ import annotations

from oncall.evidence import relation

SLOWED = 0.8  # of its normal bandwidth (TFD 2.3: jitter below about 80 %)
LASTING = 0.1  # of its periods, and two at least


@relation(
    "slowed_groups",
    reads=["bandwidth_periods", "group_places"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("comm", "UBIGINT", "", "communicator"),
        ("role", "VARCHAR", "", "what it is for"),
        ("across", "BOOLEAN", "", "its data crosses the network"),
        ("op", "VARCHAR", "", "operation"),
        ("bytes", "BIGINT", "bytes", "bytes the caller passed"),
        ("periods", "INTEGER", "", "periods seen"),
        ("slow_periods", "INTEGER", "", "of these with transfers below 80 % of normal"),
        ("at_ns", "BIGINT", "ns", "the first of them"),
        ("ratio", "DOUBLE", "ratio", "median of their bandwidth against normal"),
        ("slowed", "BOOLEAN", "", "in two of its periods at least, and in one of ten"),
        ("lost_ns", "BIGINT", "ns", "time that the slow transfers took beyond normal"),
        ("bytes_per_s", "DOUBLE", "bytes/s", "median bandwidth of its transfers"),
    ],
    source="TFD 3.3, 4.2",
)
def slowed_groups() -> str:
    """Each communicator and kind of operation, and whether its transfers slowed."""
    return f"""
        WITH periods AS (
            SELECT job, comm, op, bytes, period, max(periods) AS periods, min(at_ns) AS at_ns,
                median(transfer_ratio) AS ratio, max(transfer_bytes_per_s) AS bytes_per_s,
                median(time_ns) AS time_ns
            FROM bandwidth_periods WHERE transfer_ratio IS NOT NULL GROUP BY ALL),
        groups AS (
            SELECT job, comm, op, bytes, max(periods) AS periods,
                count(*) FILTER (ratio < {SLOWED}) AS slow_periods,
                min(at_ns) FILTER (ratio < {SLOWED}) AS at_ns,
                median(ratio) FILTER (ratio < {SLOWED}) AS ratio,
                coalesce(sum(time_ns * (1 - ratio)) FILTER (ratio < {SLOWED}), 0) AS lost_ns,
                median(bytes_per_s) AS bytes_per_s
            FROM periods GROUP BY ALL)
        SELECT g.*, p.role, p.across,
            slow_periods >= greatest(2, {LASTING} * periods) AS slowed
        FROM groups g JOIN group_places p USING (job, comm)
    """


@relation(
    "collective_alignment",
    reads=["slowed_groups", "members"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("inside", "INTEGER", "", "communicators within nodes"),
        ("inside_slowed", "INTEGER", "", "of these slowed"),
        ("across", "INTEGER", "", "communicators across nodes"),
        ("across_slowed", "INTEGER", "", "of these slowed"),
        ("ranks", "INTEGER[]", "", "ranks that every slowed communicator has"),
        ("nodes", "VARCHAR[]", "", "nodes that every slowed communicator is on"),
        ("rails", "INTEGER[]", "", "GPU indexes that all members of slowed communicators share"),
        (
            "pattern",
            "VARCHAR",
            "",
            "none; one rank, one node, one rail, one group; or inside, across, everything",
        ),
    ],
    source="TFD 4.2: which communication patterns are normal",
)
def collective_alignment() -> str:
    """Of each job, what the communicators that slowed have in common."""
    return """
        WITH groups AS (
            SELECT job, comm, bool_or(across) AS across, bool_or(slowed) AS slowed
            FROM slowed_groups GROUP BY ALL),
        counts AS (
            SELECT job, count(*) FILTER (NOT across) AS inside,
                count(*) FILTER (NOT across AND slowed) AS inside_slowed,
                count(*) FILTER (across) AS across,
                count(*) FILTER (across AND slowed) AS across_slowed,
                count(*) FILTER (slowed) AS slowed
            FROM groups GROUP BY job),
        touched AS (
            SELECT g.job, g.comm, m.rank, m.node, m.gpu
            FROM groups g JOIN members m USING (job, comm) WHERE slowed),
        common AS (
            SELECT job, list(DISTINCT rank ORDER BY rank) AS ranks
            FROM (SELECT t.job, rank FROM touched t JOIN counts USING (job) GROUP BY ALL
                  HAVING count(DISTINCT comm) = any_value(slowed))
            GROUP BY job),
        places AS (
            SELECT job, list(DISTINCT node ORDER BY node) AS nodes
            FROM (SELECT t.job, node FROM touched t JOIN counts USING (job)
                  WHERE node IS NOT NULL GROUP BY ALL
                  HAVING count(DISTINCT comm) = any_value(slowed))
            GROUP BY job),
        rails AS (
            SELECT job, list(DISTINCT gpu ORDER BY gpu) AS rails FROM touched
            WHERE gpu IS NOT NULL GROUP BY job)
        SELECT * REPLACE (coalesce(ranks, []) AS ranks, coalesce(nodes, []) AS nodes,
                coalesce(rails, []) AS rails),
            CASE WHEN slowed = 0 THEN 'none'
                WHEN slowed = 1 AND inside + across > 1 THEN 'one group'
                WHEN len(ranks) = 1 THEN 'one rank' WHEN len(nodes) = 1 THEN 'one node'
                WHEN len(rails) = 1 THEN 'one rail'
                WHEN inside_slowed = 0 THEN 'across' WHEN across_slowed = 0 THEN 'inside'
                ELSE 'everything' END AS pattern
        FROM counts LEFT JOIN common USING (job) LEFT JOIN places USING (job)
            LEFT JOIN rails USING (job)
    """
