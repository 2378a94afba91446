"""Who is late in slow rounds, and of its own making (CCL-D 4.2.2, Fig. 7).

Where P is high a slow round waited for its last member. Jitter makes each member the last by turns,
a culprit is last far more often; and own time between rounds separates who is late from who was
made late (beyond the paper).
"""

from __future__ import annotations

from oncall.evidence import Param, relation

_LATE = [
    ("job", "VARCHAR", "", "the job"),
    ("rank", "INTEGER", "", "the member that the others waited for"),
    ("comm", "UBIGINT", "", "communicator"),
    ("rounds", "BIGINT", "rounds", "slow rounds that it was the last in"),
    ("cost_ns", "BIGINT", "ns", "what the others waited beyond the baseline, in total"),
    ("at_ns", "BIGINT", "ns", "first entry of the first of them, without jitter long before"),
    ("seq", "BIGINT", "", "the one with the longest wait"),
    ("op", "VARCHAR", "", "operation"),
    ("r", "DOUBLE", "ratio", "the largest R of them"),
    ("p", "DOUBLE", "ratio", "P of the one with the longest wait"),
    ("t_max_ns", "BIGINT", "ns", "its longest time"),
    ("t_min_ns", "BIGINT", "ns", "its shortest time"),
    ("base_ns", "DOUBLE", "ns", "its baseline"),
    ("base_source", "VARCHAR", "", "configured, siblings, last arriver or measured"),
    ("basis", "VARCHAR", "", "duration; or arrival, where the transfer is not known"),
    ("own_share", "DOUBLE", "ratio", "of the wait, what its own time explains; NULL: unknown"),
]


@relation(
    "late_callers",
    reads=["slow_rounds", "own_time"],
    empty_without=["slow_rounds"],
    columns=_LATE,
    source="CCL-D 4.2.2 eq. 4, Fig. 7; own time: beyond the paper",
    params={
        "slow_ratio": "slow_rounds.slow_ratio",
        "alpha": Param(0.4, "P below this: the communication is slow (CCL-D 4.2.2)"),
        "repeat": Param(
            5, "one delay of rounds is cluster jitter; this many by the same rank are not"
        ),
        "fair_share": Param(
            2,
            "the part of a group's lost time that a culprit causes, in times of what its turn "
            "would be",
        ),
        "mostly": Param("75 %", "... and in small groups at least this part, where turns are long"),
        "jitter_before": Param(
            "25 %",
            "of the time, by which the loss lags behind an even one: it did not begin with the "
            "first round that jitter made slow",
        ),
        "cost_share": Param(
            "5 %",
            "a slowdown that costs the job less of its time than this is within what iterations "
            "differ by",
        ),
    },
)
def late_callers() -> str:
    """Each rank that was the last in slow rounds far more often than its turn."""
    return """
        WITH culpable AS (
            SELECT *, stands_for * (t_max_ns - t_min_ns - wait_ns) AS lost_ns FROM slow_rounds
            -- Mixed rounds are looked at for both: either part alone may be too much (CCL-D 4.2.2).
            WHERE p >= $alpha OR (t_max_ns - t_min_ns - wait_ns) / base_ns > $alpha * $slow_ratio),
        excess AS (
            SELECT c.job, c.comm, c.seq, avg(o.own_ns) FILTER (o.rank = c.last_rank)
                - avg(o.own_ns) FILTER (o.rank <> c.last_rank) AS own_ns
            FROM culpable c JOIN own_time o USING (job, comm, seq) GROUP BY ALL),
        -- Own time explains no more of a round than was waited for: not checkpoints and
        -- evaluations before it.
        explained AS (
            SELECT *, greatest(-(t_max_ns - t_min_ns), least(t_max_ns - t_min_ns, own_ns))
                AS explained_ns,
                (t_max_ns - t_min_ns, -seq) AS longest,
                -- Rounds as close together as one of them waits are one delay that shows again.
                at_ns // greatest(1, median(t_max_ns - t_min_ns - wait_ns)
                    OVER (PARTITION BY job, comm, last_rank))::BIGINT AS delay
            FROM culpable LEFT JOIN excess USING (job, comm, seq)),
        lost AS (SELECT job, comm, sum(lost_ns) AS all_lost_ns FROM culpable GROUP BY ALL),
        -- By how much of the time the loss so far lags behind an even one.
        lagging AS (
            SELECT *, (at_ns - min(at_ns) OVER w) / greatest(1, until_ns - min(at_ns) OVER w)
                - (sum(lost_ns) OVER (w ORDER BY at_ns, seq) - lost_ns)
                    / greatest(1, sum(lost_ns) OVER w) AS lag
            FROM explained JOIN lost USING (job, comm)
            WINDOW w AS (PARTITION BY job, comm, last_rank))
        SELECT job, last_rank AS rank, comm, count(*) AS rounds,
            sum(lost_ns)::BIGINT AS cost_ns,
            CASE WHEN max(lag) > $jitter_before THEN arg_max(at_ns, lag) ELSE min(at_ns) END
                AS at_ns,
            arg_max(seq, longest) AS seq, arg_max(op, longest) AS op, max(r) AS r,
            arg_max(p, longest) AS p, arg_max(t_max_ns, longest) AS t_max_ns,
            arg_max(t_min_ns, longest) AS t_min_ns, arg_max(base_ns, longest) AS base_ns,
            arg_max(base_source, longest) AS base_source, arg_max(basis, longest) AS basis,
            sum(explained_ns) / nullif(
                sum(t_max_ns - t_min_ns) FILTER (own_ns IS NOT NULL), 0) AS own_share
        FROM lagging GROUP BY job, last_rank, comm
        -- Jitter makes each member the last by turns; a culprit is last far more often. Of calls
        -- alone, which hosts make ahead of their devices, only who is so mostly has cost anything.
        HAVING sum(lost_ns) >= max(all_lost_ns) * CASE WHEN max(basis) = 'arrival' THEN $mostly
                ELSE least($fair_share / max(ranks), $mostly) END
            AND count(DISTINCT delay) >= $repeat
            AND sum(lost_ns) >= $cost_share * (max(until_ns) - min(at_ns))
    """


@relation(
    "late_culprits",
    reads=["late_callers", "members", "operations", "witnesses"],
    empty_without=["late_callers"],
    columns=[
        *_LATE,
        ("node", "VARCHAR", "", "its host"),
        ("gpu", "INTEGER", "", "its GPU"),
        ("label", "VARCHAR", "", "what the communicator is for"),
        ("leader", "INTEGER", "", "the first of the ranks that are late together, or itself"),
    ],
    source="beyond CCL-D: separates late ranks from their victims",
    params={
        "own_share": Param(
            0.3,
            "own time explains all lateness of a culprit alone, m/(m+p-1) of it where all p stages "
            "of a pipeline with m micro-batches are slow, about none of a victim's",
        ),
    },
)
def late_culprits() -> str:
    """Those that are late of their own making; ranks late together have one leader."""
    return """
        WITH RECURSIVE hidden AS (  -- groups in which a member left no data, or is not known
            SELECT job, comm FROM members ANTI JOIN witnesses USING (job, rank)
            UNION SELECT job, comm FROM members WHERE size IS NULL),
        culprits AS (
            SELECT l.*, m.node, m.gpu, coalesce(m.role, m.name, 'the communicator') AS label
            FROM late_callers l LEFT JOIN members m USING (job, comm, rank)
            WHERE coalesce(own_share >= $own_share, true)
                -- Calls alone do not show what a rank waited for in Send and Recv: who came late is
                -- whom the pipeline waited for.
                AND NOT (basis = 'arrival'
                    AND l.job IN (SELECT job FROM operations WHERE kind = 'p2p'))
                -- Nor whom a rank waited for in a group of which a member left no data, if the
                -- others are not all in it, too.
                AND NOT (basis = 'arrival' AND EXISTS (
                    FROM members h SEMI JOIN hidden USING (job, comm)
                    WHERE h.job = l.job AND h.rank = l.rank AND h.comm <> l.comm
                        AND (SELECT count(*) FROM members a JOIN members b USING (job, rank)
                             WHERE a.job = l.job AND a.comm = l.comm AND b.comm = h.comm)
                            < (SELECT count(*) FROM members a
                               WHERE a.job = l.job AND a.comm = l.comm)))),
        -- Ranks late together, each in its own group, are one cause: a replica with the longer
        -- data.
        joined AS (
            SELECT DISTINCT c.job, c.rank, d.rank AS other
            FROM culprits c
            JOIN members mine ON mine.job = c.job AND mine.rank = c.rank
            JOIN members theirs ON theirs.job = mine.job AND theirs.comm = mine.comm
            JOIN culprits d ON d.job = c.job AND d.rank = theirs.rank AND d.label = c.label
                AND d.comm <> c.comm
            WHERE c.own_share IS NOT NULL AND d.own_share IS NOT NULL
                AND NOT EXISTS (FROM culprits e WHERE e.job = c.job AND e.comm = mine.comm)
                AND mine.size < (SELECT count(DISTINCT rank) FROM members a WHERE a.job = c.job)),
        reached AS (
            SELECT job, rank, rank AS other FROM culprits
            UNION
            SELECT r.job, r.rank, j.other
            FROM reached r JOIN joined j ON j.job = r.job AND j.rank = r.other),
        alongside AS (SELECT job, rank, min(other) AS leader FROM reached GROUP BY ALL)
        SELECT c.*, a.leader FROM culprits c JOIN alongside a USING (job, rank)
    """
