"""Where waiting ends in recordings of calls alone, where nothing shows what is in flight.

NCCL neither refuses mismatched calls nor completes them, so members that call differently are the
root. Else it is who calls two communicators against the order of the rest. Else it is the rank that
all others wait for; where hosts call ahead of their devices, a group that made one call last, or
both ends of a transfer. Else it is who lags where others like it do not: logs of a running job end
with many of those.
"""

from __future__ import annotations

from oncall.analysis.common.operations import CALL
from oncall.evidence import relation


def _mismatched() -> str:
    """The round at the end of a log that members call differently, after rounds in which they
    agreed. If several rounds differ, the recorder lost a call, or counts them in another way."""
    return f"""
        made AS (
            SELECT job, comm, seq, op, dtype, bytes, count, root,
                min(rank) AS low, max(rank) AS high
            FROM operations SEMI JOIN call_fronts USING (job) WHERE kind = 'coll' GROUP BY ALL),
        rounds AS (
            SELECT job, comm, seq, min(call) < max(call) AS differs
            FROM (SELECT *, {CALL} AS call FROM made o)
            GROUP BY job, comm, seq HAVING min(low) < max(high)),
        mismatched AS (
            SELECT job, comm, max(seq) FILTER (differs) AS seq FROM rounds GROUP BY job, comm
            HAVING count(*) FILTER (differs) = 1
                AND max(seq) - max(seq) FILTER (differs) <= $ahead
                AND max(seq) FILTER (differs) - min(seq) >= $agreed)
    """


def _crossed() -> str:
    """Neighbouring calls at the end of a log that members of both communicators make crosswise.

    All members of two communicators run one program, so they call both in the same order. A host
    with several threads makes calls in any order all the time: such a job shows crossed calls
    earlier in the log, too.
    """
    return """
        ordered AS (
            SELECT j.job, j.rank, j.comm, j.seq,
                row_number() OVER c AS nth, count(*) OVER (PARTITION BY j.job, j.rank) AS calls
            FROM joint_calls j SEMI JOIN call_fronts USING (job, comm, rank)
            WINDOW c AS (PARTITION BY j.job, j.rank ORDER BY j.called_ns, j.comm, j.seq)),
        neighbours AS (
            SELECT job, rank, comm, seq, lead(comm) OVER c AS later_comm,
                lead(seq) OVER c AS later_seq, calls - nth AS back
            FROM ordered WINDOW c AS (PARTITION BY job, rank ORDER BY nth)
            -- What a rank has not called, it would call after all that it has.
            UNION ALL
            SELECT m.job, m.rank, m.comm, m.seq, f.comm, f.seq + 1, 0
            FROM ordered m JOIN call_fronts f USING (job, rank)
            WHERE m.nth = m.calls AND f.behind AND f.seq IS NOT NULL),
        crosswise AS (
            SELECT n.job, n.comm, n.seq, n.rank, n.later_comm, n.later_seq, count(*) AS others,
                max(greatest(n.back, r.back)) AS back
            FROM neighbours n JOIN neighbours r ON r.job = n.job AND r.rank <> n.rank
                AND r.comm = n.later_comm AND r.seq = n.later_seq
                AND r.later_comm = n.comm AND r.later_seq = n.seq
            WHERE n.comm <> n.later_comm GROUP BY ALL),
        -- Those who are fewer go against the rest, and are waited for where the rest are.
        crossed AS (
            FROM (FROM crosswise QUALIFY max(back) OVER (PARTITION BY job) <= $ahead)
            QUALIFY others = max(others) OVER (PARTITION BY job,
                least(comm, later_comm), greatest(comm, later_comm)))
    """


def _lagging() -> str:
    """Who lags in a communicator, while most of those alike do not, and waits for nobody."""
    return """
        odd AS (
            SELECT job, comm FROM (
                SELECT s.job, s.comm, s.alike, d.comm IS NOT NULL AS lags,
                    count(d.comm) OVER (PARTITION BY s.job, s.shape) AS lagging
                FROM comm_shapes s LEFT JOIN (
                    SELECT DISTINCT job, comm FROM call_fronts WHERE behind) d USING (job, comm))
            WHERE lags
            QUALIFY lagging / alike = min(lagging / alike) OVER (PARTITION BY job)
                AND lagging < alike),
        lagging AS (
            SELECT f.job, f.comm, coalesce(f.seq + 1, f.newest) AS seq, f.rank,
                coalesce(a.waiting, 1) AS waiting
            FROM call_fronts f LEFT JOIN awaited_callers a ON a.job = f.job AND a.rank = f.rank
            SEMI JOIN odd d ON d.job = f.job AND d.comm = f.comm
            SEMI JOIN awaited_callers free_one ON free_one.job = f.job
            SEMI JOIN (FROM log_ends WHERE NOT ragged) e ON e.job = f.job
            ANTI JOIN (FROM overdue_calls WHERE coalesce(waited_ns <= longest_ns, true)) o
                ON o.job = f.job AND o.rank = f.rank
            WINDOW c AS (PARTITION BY f.job, f.comm)
            QUALIFY f.behind AND 2 * count(*) FILTER (f.behind) OVER c <= count(*) OVER c),
        -- Of two, one may wait for what the other never sent; and a rank that has made a call
        -- before others waits itself, if some rank waits for no other.
        free AS (
            FROM lagging ANTI JOIN (
                SELECT t.job, t.rank FROM called_transfers t
                JOIN lagging l ON l.job = t.job AND l.rank = t.peer
                WHERE t.receives AND NOT t.answered AND (t.last OR NOT t.ahead)
                UNION
                SELECT job, rank FROM call_fronts WHERE ahead) w USING (job, rank))
    """


@relation(
    "call_roots",
    reads=["call_fronts", "awaited_callers"],
    empty_without=["call_fronts"],
    columns=[
        "job",
        ("comm", "UBIGINT", "", "communicator where the cause shows"),
        "kind",
        ("seq", "BIGINT", "", "the operation that waits"),
        ("ends", "INTEGER[]", "", "the ranks of a Send or Recv; else none"),
        ("how", "VARCHAR", "", "absent, cycle or together, as in hang_roots"),
        ("rank", "INTEGER", "", "a culprit; NULL where all members are in it"),
        ("victims", "BIGINT", "ranks", "ranks that wait because of it"),
        ("victim_comms", "INTEGER", "", "communicators that wait because of it"),
    ],
    source="VenusTrace Algorithm 1; CCL-D 4.1.2",
    params={
        "agreed": "lost_time.few",
        "ahead": "lost_time.most_lead",
    },
)
def call_roots() -> str:
    """The roots of such jobs, a row for each culprit in each call that shows it."""
    stages = (_mismatched(), _crossed(), _lagging())
    return f"""
        WITH {",".join(stages)},
        settled AS (SELECT job FROM mismatched UNION SELECT job FROM crossed),
        last_stop AS (
            SELECT *, count(*) OVER (PARTITION BY job) AS alike FROM awaited_callers
            ANTI JOIN settled USING (job)
            QUALIFY others = 0 AND count(DISTINCT place) OVER (PARTITION BY job) = 1)
        SELECT job, comm, 'coll' AS kind, seq, []::INTEGER[] AS ends, 'together' AS how,
            NULL AS rank, count(DISTINCT rank) AS victims, 1 AS victim_comms
        FROM operations JOIN mismatched USING (job, comm, seq) WHERE kind = 'coll' GROUP BY ALL
        UNION ALL
        SELECT DISTINCT job, first(later_comm) OVER pair, 'coll', first(later_seq) OVER pair, [],
            'cycle', rank, (SELECT count(DISTINCT l.rank) FROM last_calls l WHERE l.job = c.job)
                - (SELECT count(DISTINCT o.rank) FROM crossed o WHERE o.job = c.job), 2
        FROM crossed c ANTI JOIN mismatched USING (job)
        WINDOW pair AS (PARTITION BY job, least(comm, later_comm) ORDER BY others DESC, later_comm
            ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)
        UNION ALL
        SELECT job, comm, 'coll', seq, [], 'absent', rank, waiting, 1 FROM free
        ANTI JOIN settled USING (job) ANTI JOIN last_stop l ON l.job = free.job
        UNION ALL
        SELECT a.job, f.comm, 'coll', coalesce(f.seq + 1, f.newest), [], 'absent', a.rank,
            a.waiting, 1
        FROM last_stop a JOIN call_fronts f ON f.job = a.job AND f.rank = a.rank AND f.behind
        WHERE a.alike = 1
        UNION ALL
        SELECT job, min(comm), 'coll', min(seq), [], 'together', NULL, max(waiting), 1
        FROM last_stop WHERE joint AND alike > 1 GROUP BY job
        UNION ALL
        SELECT job, min(comm), 'p2p', min(seq), list_sort(list(rank)), 'together', NULL,
            max(waiting), 1
        FROM last_stop WHERE NOT joint AND alike = 2 GROUP BY job
        ORDER BY ALL
    """
