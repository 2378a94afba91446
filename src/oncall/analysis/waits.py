"""Who waits for whom, across all communicators.

A rank that waits in one communicator because its peer is stuck in another is a victim. So the
graph has two sorts of nodes: ranks, and the operations they stand in. A rank points at the
operation it stands in; an operation points at the members that keep it from completing. Where
every chain of waiting ends, there is the cause. (CCL-D looks at one communicator at a time;
PyTorch's analyzer at one operation. This is what both lack.)
"""

from __future__ import annotations

from oncall.evidence import relation

STANDING_COLUMNS = [
    ("job", "VARCHAR", "", "the job"),
    ("comm", "UBIGINT", "", "communicator"),
    ("kind", "VARCHAR", "", "coll or p2p"),
    ("seq", "BIGINT", "", "operation number"),
    ("rank", "INTEGER", "", "global rank"),
    ("op", "VARCHAR", "", "operation"),
    ("bytes", "BIGINT", "bytes", "its size"),
    ("peer", "INTEGER", "", "other side of a Send or Recv"),
    ("entered_ns", "BIGINT", "ns", "when the rank entered"),
    ("waited_ns", "BIGINT", "ns", "for how long; NULL if unknown"),
]


@relation(
    "standing",
    reads=["frontier"],
    optional=["in_flight", "operations", "launches"],
    columns=STANDING_COLUMNS,
    source="CCL-D 4.2.2",
    at="node",
)
def standing() -> str:
    """The operation each waiting rank stands in: the oldest that truly holds it.

    Not every open operation holds a rank. One is asynchronous if the rank has since completed
    another that it entered later; and one that all other members have completed, calling the
    same, is only late in being noticed on this rank. Ranks known only by their launch counter stand in the newest
    operation of a communicator whose counters differ.
    """
    return """
        WITH newest_done AS (
            SELECT job, rank, max(entered_ns) AS entered_ns FROM operations WHERE done GROUP BY ALL),
        others AS (
            SELECT f.job, f.comm, f.seq, f.rank
            FROM (SELECT DISTINCT job, comm, seq, rank FROM in_flight WHERE kind = 'coll') f
            JOIN frontier x ON x.job = f.job AND x.comm = f.comm AND x.rank <> f.rank
            GROUP BY ALL HAVING bool_and(coalesce(x.done_seq >= f.seq, false))),
        disputed AS (
            SELECT o.job, o.comm, o.seq FROM operations o SEMI JOIN others USING (job, comm, seq)
            WHERE o.kind = 'coll' GROUP BY ALL HAVING count(DISTINCT o.op) > 1),
        holding AS (
            SELECT i.* FROM in_flight i
            LEFT JOIN newest_done d USING (job, rank)
            ANTI JOIN (SELECT * FROM others ANTI JOIN disputed USING (job, comm, seq)) o ON i.kind = 'coll' AND o.job = i.job AND o.comm = i.comm
                AND o.seq = i.seq AND o.rank = i.rank
            WHERE d.entered_ns IS NULL OR i.entered_ns IS NULL OR i.entered_ns > d.entered_ns
            QUALIFY row_number() OVER (
                PARTITION BY i.job, i.rank ORDER BY i.entered_ns NULLS LAST, i.seq) = 1),
        counted AS (
            SELECT job, comm, rank, max(launched) AS launched,
                max(at_ns) - min(at_ns) FILTER (launched = newest) AS unchanged_ns
            FROM (SELECT *, max(launched) OVER (PARTITION BY job, comm, rank) AS newest
                  FROM launches WHERE state IS NULL OR state NOT IN ('unresponsive', 'dead'))
            ANTI JOIN (SELECT DISTINCT job, comm FROM operations) USING (job, comm)
            GROUP BY ALL),
        ahead AS (
            SELECT *, max(launched) OVER (PARTITION BY job, comm) AS highest,
                min(launched) OVER (PARTITION BY job, comm) AS lowest,
                count(*) OVER (PARTITION BY job, comm) AS heard
            FROM counted),
        known AS (SELECT job, comm, count(*) AS size FROM frontier GROUP BY ALL)
        SELECT job, comm, kind, seq, rank, op, bytes, peer, entered_ns, waited_ns FROM holding
        UNION ALL
        SELECT a.job, a.comm, 'coll', a.launched, a.rank, NULL, NULL, NULL, NULL,
            nullif(a.unchanged_ns, 0)
        FROM ahead a JOIN known k USING (job, comm)
        WHERE a.launched = a.highest AND (a.lowest < a.highest OR a.heard < k.size)
    """


@relation(
    "holders",
    reads=["standing", "members", "frontier"],
    optional=["in_flight", "witnesses", "operations"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("comm", "UBIGINT", "", "communicator of the operation that waits"),
        ("kind", "VARCHAR", "", "coll or p2p"),
        ("seq", "BIGINT", "", "its number"),
        ("owner", "INTEGER", "", "the waiting rank of an unmatched Send or Recv, else NULL"),
        ("rank", "INTEGER", "", "a rank that keeps it from completing"),
        ("how", "VARCHAR", "", "absent: has not entered; silent: no evidence; elsewhere: busy"),
    ],
    source="CCL-D 4.2.2",
)
def holders() -> str:
    """For each operation somebody stands in: the members that keep it from completing.

    Members that have not entered come first; a silent member is suspected only where no other
    is known to be absent; then members that have entered but stand in an earlier operation. An
    operation with none of them is one where all stand together.
    """
    return """
        WITH collectives AS (
            SELECT DISTINCT job, comm, seq FROM standing WHERE kind = 'coll'),
        roll AS (
            SELECT c.job, c.comm, c.seq, m.rank,
                CASE WHEN w.rank IS NULL THEN 'silent'
                     WHEN coalesce(f.entered_seq < c.seq, true) THEN 'absent'
                     WHEN s.rank IS NOT NULL AND (s.comm <> c.comm OR s.kind <> 'coll'
                                                  OR s.seq <> c.seq)
                          AND i.rank IS NOT NULL THEN 'elsewhere'
                     WHEN s.rank IS NULL AND i.rank IS NOT NULL THEN 'elsewhere' END AS how
            FROM collectives c
            JOIN members m USING (job, comm)
            LEFT JOIN frontier f ON f.job = c.job AND f.comm = c.comm AND f.rank = m.rank
            LEFT JOIN witnesses w ON w.job = c.job AND w.rank = m.rank
            LEFT JOIN (SELECT DISTINCT ON (job, rank) * FROM standing) s
                ON s.job = c.job AND s.rank = m.rank
            LEFT JOIN in_flight i ON i.kind = 'coll' AND i.job = c.job AND i.comm = c.comm
                AND i.seq = c.seq AND i.rank = m.rank),
        pairs AS (
            SELECT s.job, s.comm, s.seq, s.rank AS owner, coalesce(s.peer, m.rank) AS rank, s.op
            FROM standing s LEFT JOIN members m ON s.peer IS NULL AND m.size = 2
                AND m.job = s.job AND m.comm = s.comm AND m.rank <> s.rank
            WHERE s.kind = 'p2p' AND coalesce(s.peer, m.rank) IS NOT NULL),
        answered AS (
            SELECT p.*, w.rank IS NOT NULL AS heard,
                count(i.rank) > 0 AS matched,
                coalesce(bool_or(i.seq = x.seq AND i.comm = x.comm), false) AS together
            FROM pairs p
            LEFT JOIN witnesses w ON w.job = p.job AND w.rank = p.rank
            LEFT JOIN in_flight i ON i.kind = 'p2p' AND i.job = p.job AND i.rank = p.rank
                AND i.comm = p.comm AND coalesce(i.peer = p.owner, true) AND i.op <> p.op
            LEFT JOIN standing x ON x.job = p.job AND x.rank = p.rank AND x.kind = 'p2p'
            GROUP BY ALL),
        passed AS (
            SELECT DISTINCT a.job, a.comm, a.seq, a.owner
            FROM answered a JOIN operations o ON o.done AND o.kind = 'p2p' AND o.job = a.job
                AND o.comm = a.comm AND o.seq = a.seq AND o.rank = a.rank
                AND o.peer = a.owner AND o.op <> a.op)
        SELECT job, comm, 'coll' AS kind, seq, NULL AS owner, rank, how FROM roll
        WHERE how IS NOT NULL
        WINDOW sibling AS (PARTITION BY job, comm, seq)
        QUALIFY how = 'absent'
            OR (how = 'silent' AND NOT bool_or(how = 'absent') OVER sibling)
            OR (how = 'elsewhere' AND NOT bool_or(how IN ('absent', 'silent')) OVER sibling)
        UNION ALL
        SELECT job, comm, 'p2p', seq, owner, rank,
            CASE WHEN NOT heard THEN 'silent' WHEN matched THEN 'elsewhere' ELSE 'absent' END
        FROM answered ANTI JOIN passed USING (job, comm, seq, owner)
        WHERE NOT (matched AND together)
    """
