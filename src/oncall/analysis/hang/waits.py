"""Which rank waits for which, across all communicators.

A rank that waits in one communicator because its peer is blocked in another is a victim. So the
graph has two kinds of nodes: ranks, and the operations they are blocked in. A rank points at the
operation it is blocked in; an operation points at the members that keep it from completing. The
cause is where every chain of waiting ends. (CCL-D looks at one communicator at a time, PyTorch's
analyzer at one operation; neither follows waiting from one communicator to another.)
"""

from __future__ import annotations

from oncall.analysis.common.operations import CALL, MANNER
from oncall.evidence import relation

BLOCKED_COLUMNS = [
    "job comm kind seq rank op",
    ("bytes", "BIGINT", "bytes", "its size"),
    "peer",
    ("called_ns", "BIGINT", "ns", "when its host called it, or the group call that it is in"),
    "entered_ns",
    ("waited_ns", "BIGINT", "ns", "for how long; NULL if unknown"),
]


def _numbered() -> str:
    """Open halves, and their state where both sides number what goes between them."""
    return """
        open AS (
            SELECT i.job, i.comm, i.seq, i.rank, i.op, i.pair_seq,
                coalesce(i.peer, m.rank) AS peer
            FROM in_flight i LEFT JOIN members m ON i.peer IS NULL
                AND m.job = i.job AND m.comm = i.comm AND m.rank <> i.rank
                AND (m.comm_rank = i.comm_peer OR (i.comm_peer IS NULL AND m.size = 2))
            WHERE i.kind = 'p2p' AND coalesce(i.peer, m.rank) IS NOT NULL),
        -- Where both sides counted what goes between them, the numbers say it exactly.
        paired AS (
            SELECT a.job, a.comm, a.seq, a.rank, a.peer, a.op,
                CASE WHEN max(b.pair_seq) < a.pair_seq THEN 'unmatched'
                     WHEN bool_or(b.pair_seq = a.pair_seq AND i.ops_row IS NOT NULL) THEN 'matched'
                     ELSE 'passed' END AS state
            FROM open a JOIN operations b ON b.job = a.job AND b.comm = a.comm
                AND b.rank = a.peer AND coalesce(b.peer, a.rank) = a.rank
                AND b.kind = 'p2p' AND b.op <> a.op AND b.pair_seq IS NOT NULL
            LEFT JOIN in_flight i ON i.ops_row = b.ops_row
            WHERE a.pair_seq IS NOT NULL
            GROUP BY a.job, a.comm, a.seq, a.rank, a.peer, a.op, a.pair_seq)
    """


def _compared() -> str:
    """What the other side has called, where only numbers of the communicator are known."""
    return """
        facing AS (
            SELECT a.job, a.comm, a.seq, a.rank, a.peer, a.op,
                count(b.rank) FILTER (b.op <> a.op) AS answers,
                max(b.seq) FILTER (b.op <> a.op) AS newest_answer, min(b.seq) AS oldest
            FROM open a LEFT JOIN open b ON b.job = a.job AND b.comm = a.comm
                AND b.rank = a.peer AND b.peer = a.rank
            GROUP BY ALL),
        sides AS (
            SELECT job, comm, seq, rank, peer, op, bool_or(done) AS done
            FROM operations SEMI JOIN open USING (job, comm) WHERE kind = 'p2p' GROUP BY ALL),
        reach AS (
            SELECT job, comm, rank, min(seq) AS low, max(seq) AS high FROM sides GROUP BY ALL),
        compared AS (
            SELECT a.job, a.comm, bool_and(b.rank IS NOT NULL) AS agree FROM sides a
            JOIN reach r ON r.job = a.job AND r.comm = a.comm AND r.rank = a.peer
                AND a.seq >= r.low AND (a.done OR a.seq <= r.high)
            LEFT JOIN sides b ON b.job = a.job AND b.comm = a.comm AND b.seq = a.seq
                AND b.rank = a.peer AND b.peer = a.rank AND b.op <> a.op
            GROUP BY ALL),
        aligned AS (
            SELECT m.job, m.comm FROM members m LEFT JOIN compared c USING (job, comm)
            GROUP BY ALL HAVING coalesce(bool_and(c.agree), max(m.size) = 2)),
        finished AS (
            SELECT DISTINCT f.job, f.comm, f.seq, f.rank, f.peer, f.op FROM facing f
            JOIN sides o ON o.done AND o.job = f.job AND o.comm = f.comm
                AND o.seq = f.seq AND o.rank = f.peer AND o.peer = f.rank AND o.op <> f.op)
    """


@relation(
    "open_pairs",
    reads=["in_flight"],
    empty_without=["in_flight"],
    columns=[
        "job comm",
        ("seq", "BIGINT", "", "the rank's number for its Send or Recv"),
        ("rank", "INTEGER", "", "the rank with an open Send or Recv"),
        "peer op",
        ("state", "VARCHAR", "", "unmatched, matched, or passed: the other half is completed"),
    ],
    source="beyond CCL-D: Send and Recv in the wait-for graph",
)
def open_pairs() -> str:
    """Every open Send or Recv and whether its other side has entered, or already left, its half.

    Without numbers of the pair, those on the communicator are compared, and only where every
    number that both have come to is the same call on both; on communicators larger than two, where
    at least one is.
    """
    stages = (_numbered(), _compared())
    return f"""
        WITH {",".join(stages)}
        SELECT f.job, f.comm, f.seq, f.rank, f.peer, f.op,
            CASE WHEN p.state IS NOT NULL THEN p.state
                 WHEN a.comm IS NOT NULL AND (d.seq IS NOT NULL OR f.oldest > f.seq) THEN 'passed'
                 WHEN f.answers = 0 OR (a.comm IS NOT NULL AND f.newest_answer < f.seq)
                 THEN 'unmatched' ELSE 'matched' END AS state
        FROM facing f LEFT JOIN aligned a USING (job, comm)
        LEFT JOIN finished d USING (job, comm, seq, rank, peer, op)
        LEFT JOIN paired p USING (job, comm, seq, rank, peer, op)
    """


def _left_open() -> str:
    """Open collectives that most other members, calling the same, have completed.

    They wait for no other rank: this rank fails to finish an operation that all took part in. Not
    included: the operation that the rank's device entered last, with later ones queued behind it,
    since that one does hold the rank up.
    """
    return f"""
        opened AS (SELECT DISTINCT job, comm, seq, rank FROM in_flight WHERE kind = 'coll'),
        reached AS (
            SELECT o.job, o.comm, o.seq, count(*) AS members,
                count(*) FILTER (f.done_seq >= o.seq) AS done
            FROM (SELECT DISTINCT job, comm, seq FROM opened) o JOIN frontier f USING (job, comm)
            GROUP BY ALL),
        outdone AS (
            SELECT o.* FROM opened o JOIN reached p USING (job, comm, seq)
            JOIN frontier f USING (job, comm, rank)
            -- Of the others: less the rank itself.
            WHERE 2 * (p.done - coalesce(f.done_seq >= o.seq, false)::INTEGER) > p.members - 1),
        disputed AS (
            SELECT o.job, o.comm, o.seq FROM operations o SEMI JOIN outdone USING (job, comm, seq)
            WHERE o.kind = 'coll' GROUP BY ALL
            HAVING count(DISTINCT {CALL}) > 1 OR count(DISTINCT {MANNER}) > 1),
        on_devices AS (
            SELECT job, comm, rank, max(seq) FILTER (on_device) AS seq FROM in_flight
            WHERE kind = 'coll' GROUP BY ALL
            HAVING max(seq) FILTER (on_device) < max(seq) FILTER (NOT on_device)),
        left_open AS (
            SELECT * FROM outdone ANTI JOIN disputed USING (job, comm, seq)
            ANTI JOIN on_devices USING (job, comm, rank, seq))
    """


@relation(
    "blocked_operations",
    reads=["frontier"],
    empty_without=["in_flight|counted_ahead"],
    columns=BLOCKED_COLUMNS,
    source="CCL-D 4.2.2",
)
def blocked_operations() -> str:
    """The operation each waiting rank is blocked in: the oldest that truly holds it.

    Not every open operation holds a rank: it may be left open, and it is asynchronous if the
    rank has since completed another that it called later. A process that is gone is blocked
    nowhere. Ranks known only by their launch counter are taken to be in the newest operation of a
    communicator whose counters differ.
    """
    return f"""
        WITH {_left_open()},
        newest_done AS (
            SELECT job, rank, max(newest_ns) AS called_ns FROM heads GROUP BY ALL),
        passed AS (FROM open_pairs WHERE state = 'passed'),
        -- Sends and receives of one group call are entered together and held together.
        together AS (
            SELECT * REPLACE (CASE WHEN group_id IS NULL THEN called_ns ELSE
                min(called_ns) OVER (PARTITION BY job, rank, group_id) END AS called_ns)
            FROM in_flight),
        pending AS (
            SELECT i.* FROM together i
            ANTI JOIN halted g ON g.job = i.job AND g.rank = i.rank
            ANTI JOIN left_open o ON i.kind = 'coll' AND o.job = i.job AND o.comm = i.comm
                AND o.seq = i.seq AND o.rank = i.rank
            ANTI JOIN passed p ON i.kind = 'p2p' AND p.job = i.job AND p.comm = i.comm
                AND p.seq = i.seq AND p.rank = i.rank AND p.op = i.op),
        holding AS (
            SELECT i.* FROM pending i
            LEFT JOIN newest_done d USING (job, rank)
            WHERE d.called_ns IS NULL OR i.called_ns IS NULL OR i.called_ns > d.called_ns
            QUALIFY rank() OVER (
                PARTITION BY i.job, i.rank ORDER BY i.called_ns NULLS LAST,
                    CASE WHEN i.kind = 'coll' OR i.called_ns IS NULL THEN i.seq END) = 1),
        -- A communicator runs its collectives in order: the oldest open one holds up the others.
        first AS (
            SELECT i.* FROM pending i
            SEMI JOIN (FROM holding WHERE kind = 'coll') h USING (job, comm, rank)
            WHERE i.kind = 'coll'
            QUALIFY row_number() OVER (PARTITION BY i.job, i.comm, i.rank ORDER BY i.seq) = 1),
        -- If all members have called a collective and it does not complete, a member with something
        -- older pending is still in that: it was asynchronous until something waited for it.
        joined AS (
            SELECT job, comm, seq FROM first
            JOIN (SELECT job, comm, count(*) AS size FROM members GROUP BY ALL) USING (job, comm)
            GROUP BY ALL HAVING count(*) = any_value(size)),
        older AS (
            SELECT i.* FROM pending i
            JOIN (FROM first SEMI JOIN joined USING (job, comm, seq)) f
                ON f.job = i.job AND f.rank = i.rank AND (f.comm <> i.comm OR i.kind = 'p2p')
            WHERE i.called_ns < f.called_ns
            QUALIFY rank() OVER (
                PARTITION BY i.job, i.rank
                ORDER BY i.called_ns, CASE WHEN i.kind = 'coll' THEN (i.comm, i.seq) END) = 1)
        SELECT job, comm, kind, seq, rank, op, bytes, peer, called_ns, entered_ns, waited_ns
        FROM (FROM holding WHERE kind = 'p2p'
            UNION ALL BY NAME FROM first ANTI JOIN older USING (job, rank)
            UNION ALL BY NAME FROM older)
        UNION ALL
        SELECT job, comm, 'coll', launched, rank, NULL, NULL, NULL, NULL, NULL, unchanged_ns
        FROM counted_ahead
    """


def _collective_holders() -> str:
    """Of each collective that a rank is blocked in: each member, and how it holds it up."""
    return """
        collectives AS (
            SELECT job, comm, seq, min(called_ns) AS called_ns FROM blocked_operations
            WHERE kind = 'coll' GROUP BY ALL),
        written AS (
            SELECT job, rank, max(written_ns) AS written_ns FROM recordings
            WHERE kind = 'flight_recorder' GROUP BY ALL),
        roll AS (
            SELECT c.job, c.comm, c.seq, m.rank,
                CASE WHEN w.rank IS NULL THEN 'silent'
                     WHEN coalesce(f.entered_seq < c.seq, true)
                     -- Whose recording was written before the others' call may have made it since.
                     THEN CASE WHEN r.written_ns < c.called_ns THEN 'silent' ELSE 'absent' END
                     WHEN s.rank IS NOT NULL AND (s.comm <> c.comm OR s.kind <> 'coll'
                                                  OR s.seq <> c.seq)
                          AND i.rank IS NOT NULL
                          AND coalesce(s.called_ns <= i.called_ns, true) THEN 'elsewhere'
                     WHEN s.rank IS NULL AND i.rank IS NOT NULL THEN 'elsewhere' END AS how
            FROM collectives c
            JOIN members m USING (job, comm)
            LEFT JOIN frontier f ON f.job = c.job AND f.comm = c.comm AND f.rank = m.rank
            LEFT JOIN witnesses w ON w.job = c.job AND w.rank = m.rank
            LEFT JOIN written r ON r.job = c.job AND r.rank = m.rank
            LEFT JOIN (SELECT DISTINCT ON (job, rank) * FROM blocked_operations ORDER BY ALL) s
                ON s.job = c.job AND s.rank = m.rank
            LEFT JOIN in_flight i ON i.kind = 'coll' AND i.job = c.job AND i.comm = c.comm
                AND i.seq = c.seq AND i.rank = m.rank),
        -- Where a group's size is not known, a rank in no group of its role may belong to it.
        groups AS (
            SELECT job, comm, any_value(role) AS role FROM members
            GROUP BY ALL HAVING max(size) IS NULL AND any_value(role) IS NOT NULL),
        strays AS (
            SELECT c.job, c.comm, c.seq, p.rank,
                CASE WHEN p.observed THEN 'absent' ELSE 'silent' END AS how
            FROM collectives c JOIN groups g USING (job, comm) JOIN processes p USING (job)
            WHERE NOT EXISTS (FROM roll r WHERE r.job = c.job AND r.comm = c.comm
                              AND r.seq = c.seq AND r.how = 'absent')
              AND NOT EXISTS (FROM members m WHERE m.job = p.job AND m.rank = p.rank
                              AND m.role = g.role))
    """


def _transfer_holders() -> str:
    """Of each Send or Recv that a rank is blocked in: its other side, and where that is."""
    return """
        -- Halves called before what their rank is blocked in.
        posted AS (
            SELECT o.job, o.comm, o.rank, o.peer, o.op FROM open_pairs o
            JOIN in_flight i ON i.kind = 'p2p' AND i.job = o.job AND i.comm = o.comm
                AND i.seq = o.seq AND i.rank = o.rank AND i.op = o.op
            JOIN blocked_operations s ON s.job = o.job AND s.rank = o.rank
            GROUP BY ALL HAVING min(i.called_ns) < min(s.called_ns)),
        pairs AS (
            SELECT p.*, w.rank IS NOT NULL AS observed,
                x.rank IS NOT NULL OR h.rank IS NOT NULL AS together
            FROM blocked_operations s
            JOIN open_pairs p ON p.job = s.job AND p.comm = s.comm AND p.seq = s.seq
                AND p.rank = s.rank AND p.op = s.op AND p.peer = coalesce(s.peer, p.peer)
            LEFT JOIN witnesses w ON w.job = p.job AND w.rank = p.peer
            -- Together only if the other side is blocked in the matching half: a Send may face a
            -- Send.
            LEFT JOIN blocked_operations x ON x.kind = 'p2p' AND x.job = p.job AND x.comm = p.comm
                AND x.rank = p.peer AND coalesce(x.peer, p.rank) = p.rank
                AND (x.op <> p.op OR x.entered_ns IS NULL)
            LEFT JOIN posted h ON h.job = p.job AND h.comm = p.comm AND h.rank = p.peer
                AND h.peer = p.rank AND h.op <> p.op
            WHERE s.kind = 'p2p'
            QUALIFY row_number() OVER (
                PARTITION BY p.job, p.comm, p.seq, p.rank, p.peer, p.op ORDER BY x.seq) = 1)
    """


@relation(
    "holders",
    reads=["blocked_operations", "members", "frontier"],
    empty_without=["blocked_operations"],
    columns=[
        "job",
        ("comm", "UBIGINT", "", "communicator of the operation that waits"),
        "kind seq",
        ("owner", "INTEGER", "", "the waiting rank of an unmatched Send or Recv, else NULL"),
        ("rank", "INTEGER", "", "a rank that keeps it from completing"),
        ("how", "VARCHAR", "", "absent: has not entered; silent: no data; elsewhere: busy"),
    ],
    source="CCL-D 4.2.2",
)
def holders() -> str:
    """For each operation that a rank is blocked in: the members that keep it from completing.

    Members that have not entered count first. Only if none is known to be absent, a member without
    data is suspected, or one that has entered but is blocked in an operation that its host called
    earlier. An operation without any of these is one that all members are in.
    """
    stages = (_collective_holders(), _transfer_holders())
    return f"""
        WITH {",".join(stages)}
        SELECT job, comm, 'coll' AS kind, seq, NULL AS owner, rank, how
        FROM (FROM roll UNION ALL FROM strays)
        WHERE how IS NOT NULL
        WINDOW sibling AS (PARTITION BY job, comm, seq)
        QUALIFY how = 'absent'
            OR (how = 'silent' AND NOT bool_or(how = 'absent') OVER sibling)
            OR (how = 'elsewhere' AND NOT bool_or(how = 'absent') OVER sibling)
        UNION ALL
        SELECT job, comm, 'p2p', seq, rank, peer,
            CASE WHEN NOT observed THEN 'silent' WHEN state = 'matched' THEN 'elsewhere'
                 ELSE 'absent' END
        FROM pairs WHERE NOT (state = 'matched' AND together)
    """
