"""What stopped a job, where calls alone are recorded (VenusTrace Algorithm 1).

A rank stopped if others wait for its next call and the call is overdue by more than ever before. If
both ends of the transfer that it is in were called, the transfer hangs. If several ranks made the
same call last, the culprit among them is unknown: their hosts had called ahead. A call that is not
overdue may be missing only because the log ends.
"""

from __future__ import annotations

from oncall.evidence import Param, relation


@relation(
    "standstills",
    reads=["overdue_calls"],
    optional=["awaited_callers", "open_transfers", "stage_layout"],
    empty_without=["overdue_calls"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("comm", "UBIGINT", "", "communicator where it shows"),
        ("seq", "BIGINT", "", "the call there that others wait in"),
        ("kind", "VARCHAR", "", "coll, or p2p: a transfer between stages hangs"),
        ("how", "VARCHAR", "", "absent: its call is missing; together: all have called"),
        ("rank", "INTEGER", "", "the rank that stopped; of a transfer the sender; of a group each"),
        ("peer", "INTEGER", "", "who receives"),
        ("op", "VARCHAR", "", "what the others, or all, have called"),
        ("victims", "BIGINT", "ranks", "ranks that wait because of it, as far as observed"),
        ("since_ns", "BIGINT", "ns", "its last call, on its own clock"),
        ("waited_ns", "BIGINT", "ns", "for how long the others went on without it"),
        ("longest_ns", "BIGINT", "ns", "the longest that they had ever done so"),
    ],
    source="VenusTrace 3.3, Algorithm 1",
    params={
        "lost": Param(
            5,
            "times as long as the others went on calling: else its recorder lost calls",
        ),
        "times": Param(
            2, "times the longest wait before (VenusTrace 4: n = 100 % beyond what is expected)"
        ),
        "scatter": "overdue_calls.scatter",
    },
)
def standstills() -> str:
    """The ranks where a job stopped: one rank, the two ends of a transfer, or a group."""
    return """
        WITH judged AS (
            SELECT a.*, o.* EXCLUDE (job, rank, comm, seq, op, waiting), o.comm AS awaited_comm,
                o.seq AS awaited_seq, o.op AS awaited_op, l.stage,
                coalesce(waited_ns > $times * greatest(longest_ns, $scatter)
                    AND longest_ns IS NOT NULL AND waited_ns > $lost * ran_on_ns
                    AND coalesce(silent_ns > longest_silent_ns, true), false) AS awaited,
                coalesce(silent_ns > $times * longest_silent_ns, false) AS silent,
                count(*) OVER (PARTITION BY a.job, a.joint, a.comm, a.seq) AS alike
            FROM awaited_callers a JOIN overdue_calls o USING (job, rank)
            LEFT JOIN stage_layout l USING (job, rank)),
        -- Who made a joint call last is free for certain; of a Send or Recv tasks tell, if at all.
        free AS (
            SELECT *, CASE WHEN joint THEN 2 WHEN answered THEN 1 ELSE 0 END AS certain FROM judged
            QUALIFY certain = max(certain) OVER (PARTITION BY job)),
        -- While anybody still has time for its next call, or many pause at once, nothing stands.
        overdue AS (
            SELECT * FROM free WINDOW every AS (PARTITION BY job)
            QUALIFY CASE WHEN joint THEN bool_and(awaited OR (silent AND alike > 1)) OVER every
                    ELSE awaited END
                AND (NOT joint OR count(DISTINCT (comm, seq)) OVER every = 1
                    OR (min(alike) OVER every > 1 AND count(DISTINCT stage) OVER every = 1))),
        -- Where hosts call ahead of their devices, all of a group have called what one stands in.
        together AS (SELECT * FROM overdue WHERE joint AND alike > 1),
        pairs AS (
            SELECT s.job, s.rank, s.peer FROM open_transfers s
            JOIN overdue a ON a.job = s.job AND a.rank = s.rank
            JOIN overdue b ON b.job = s.job AND b.rank = s.peer
            WHERE s.answered AND NOT s.receives AND NOT a.joint
            QUALIFY row_number() OVER (
                PARTITION BY s.job, least(s.rank, s.peer) ORDER BY s.rank) = 1),
        alone AS (
            SELECT * FROM overdue
            ANTI JOIN (SELECT DISTINCT job FROM together) USING (job)
            ANTI JOIN (SELECT DISTINCT job FROM pairs) USING (job)
            -- Of several that wait in transfers the one waited for first is where it began.
            QUALIFY joint OR waited_ns = max(waited_ns) OVER (PARTITION BY job))
        SELECT job, awaited_comm AS comm, awaited_seq AS seq, 'coll' AS kind, 'absent' AS how, rank,
            NULL AS peer, awaited_op AS op, waiting AS victims, since_ns, waited_ns, longest_ns
        FROM alone
        UNION ALL
        SELECT job, o.comm, o.seq, 'p2p', 'together', rank, p.peer, 'Send',
            o.waiting, o.since_ns, o.waited_ns, o.longest_ns
        FROM pairs p JOIN overdue o USING (job, rank)
        UNION ALL
        SELECT job, min(comm) OVER each, arg_min(seq, (comm, seq)) OVER each, 'coll',
            'together', rank, NULL, op, max(waiting) OVER each, since_ns,
            greatest(silent_ns, waited_ns),
            CASE WHEN silent_ns >= waited_ns THEN longest_silent_ns ELSE longest_ns END
        FROM together WINDOW each AS (PARTITION BY job)
    """


@relation(
    "longest_pauses",
    reads=["operations"],
    optional=["standstills"],
    empty_without=["standstills"],
    columns=[
        ("job", "VARCHAR", "", "a job of which only calls are recorded, and which hangs"),
        ("pause_ns", "BIGINT", "ns", "the longest time from a rank's call to its next"),
    ],
    source="beyond VenusTrace: evaluations and checkpoints end",
)
def longest_pauses() -> str:
    """How long ranks have been without a call before, and gone on."""
    return """
        SELECT job, max(pause_ns) AS pause_ns FROM (
            SELECT job, called_ns - lag(called_ns) OVER (
                PARTITION BY job, rank ORDER BY called_ns) AS pause_ns
            FROM operations SEMI JOIN standstills USING (job) WHERE called_ns IS NOT NULL)
        GROUP BY job HAVING max(pause_ns) IS NOT NULL
    """
