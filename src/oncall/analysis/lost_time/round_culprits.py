"""Who is late in slow rounds, and who transfers slowly in them (CCL-D 4.2.2, Fig. 7).

Where P is high a slow round waited for its last member. Jitter makes each member the last by turns,
a culprit is last far more often; and own time between rounds separates who is late from who was
made late (beyond the paper). Where P is low the round is a slow transfer, of the communicator as a
whole; whose of its members it is, rates of sending and receiving say, as of all slow transfers.
"""

from __future__ import annotations

from oncall.evidence import Param, relation


def _callers() -> str:
    """Each rank that was the last in slow rounds far more often than its turn."""
    return """
        culpable AS (
            SELECT *, stands_for * (t_max_ns - t_min_ns - wait_ns) AS lost_ns FROM slow_rounds
            -- Mixed rounds are looked at for both: either part alone may be too much (CCL-D 4.2.2).
            WHERE p >= $alpha OR (t_max_ns - t_min_ns - wait_ns) / base_ns > $alpha * $slow_ratio),
        excess AS (
            SELECT c.job, c.comm, c.seq, avg(o.own_ns) FILTER (o.rank = c.last_rank)
                - avg(o.own_ns) FILTER (o.rank <> c.last_rank) AS own_ns
            FROM culpable c JOIN own_time o USING (job, comm, seq) GROUP BY ALL),
        lost AS (SELECT job, comm, sum(lost_ns) AS all_lost_ns FROM culpable GROUP BY ALL),
        -- Own time explains no more of a round than was waited for: not checkpoints and
        -- evaluations before it.
        explained AS (
            SELECT *, greatest(-(t_max_ns - t_min_ns), least(t_max_ns - t_min_ns, own_ns))
                AS explained_ns,
                -- Rounds as close together as one of them waits are one delay that shows again.
                at_ns // greatest(1, median(t_max_ns - t_min_ns - wait_ns)
                    OVER (PARTITION BY job, comm, last_rank))::BIGINT AS delay
            FROM culpable LEFT JOIN excess USING (job, comm, seq) JOIN lost USING (job, comm)),
        delays AS (
            SELECT job, last_rank, comm, min(at_ns) AS at_ns, max(at_ns) AS last_ns,
                sum(lost_ns) AS lost_ns,
                sum(sum(lost_ns)) OVER mine AS all_ns,
                sum(pow(sum(lost_ns), 2)) OVER mine AS squares
            FROM explained GROUP BY job, last_rank, comm, delay
            WINDOW mine AS (PARTITION BY job, last_rank, comm)),
        -- How many delays of equal length would lose as much: short ones beside a few long ones
        -- hardly count. The long ones show when it began, and how far apart they are at most.
        losses AS (
            SELECT job, last_rank, comm, max(pow(all_ns, 2) / squares) AS delays,
                min(at_ns) AS at_ns, max(last_ns) AS last_ns, max(rest_ns) AS rest_ns
            FROM (SELECT *, at_ns - lag(last_ns) OVER (
                      PARTITION BY job, last_rank, comm ORDER BY at_ns) AS rest_ns
                  FROM delays WHERE 2 * lost_ns >= squares / all_ns)
            GROUP BY ALL),
        callers AS (
            SELECT job, last_rank AS rank, comm, count(*) AS rounds, l.at_ns,
                CASE WHEN max(e.until_ns) - l.last_ns > $stands_out * l.rest_ns THEN l.last_ns END
                    AS until_ns,
                sum(lost_ns)::BIGINT AS cost_ns, any_value(basis) AS basis,
                sum(explained_ns) / nullif(
                    sum(t_max_ns - t_min_ns) FILTER (own_ns IS NOT NULL), 0) AS own_share
            FROM explained e JOIN losses l USING (job, last_rank, comm)
            GROUP BY job, last_rank, comm, l.at_ns, l.last_ns, l.rest_ns, l.delays
            -- Of calls alone, which hosts make ahead of their devices, only who is mostly the last
            -- has cost anything.
            HAVING sum(lost_ns) >= max(all_lost_ns) * CASE WHEN max(basis) = 'arrival' THEN $mostly
                    ELSE least($fair_share / max(ranks), $mostly) END
                AND l.delays >= $repeat
                AND sum(lost_ns) >= $cost_share * (max(e.until_ns) - l.at_ns))
    """


@relation(
    "late_culprits",
    reads=["slow_rounds", "own_time", "members", "operations", "witnesses"],
    empty_without=["slow_rounds"],
    columns=[
        "job comm",
        ("rounds", "BIGINT", "rounds", "slow rounds that show it"),
        ("at_ns", "BIGINT", "ns", "first entry of the first of them"),
        ("until_ns", "BIGINT", "ns", "of the last of them, if it is over"),
        ("cost_ns", "BIGINT", "ns", "by how much they were longer, in total"),
        ("rank", "INTEGER", "", "the member that the others waited for"),
        ("basis", "VARCHAR", "", "duration; or arrival, where the transfer is not known"),
        ("own_share", "DOUBLE", "ratio", "of the wait, what its own time explains; NULL: unknown"),
    ],
    source="CCL-D 4.2.2 eq. 4, Fig. 7; own time: beyond the paper",
    params={
        "slow_ratio": "slow_rounds.slow_ratio",
        "alpha": Param(0.4, "P below this: the communication is slow (CCL-D 4.2.2)"),
        "repeat": Param(5, "delays of one rank or link: fewer are jitter of the cluster"),
        "fair_share": Param(
            2,
            "the part of a group's lost time that a culprit causes, in times of what its turn "
            "would be",
        ),
        "mostly": Param("75 %", "... and in small groups at least this part, where turns are long"),
        "cost_share": "lost_time.least_gain",
        "stands_out": "lost_time.stands_out",
        "own_share": Param(
            0.3,
            "own time explains all lateness of a culprit alone, m/(m+p-1) of it where all p stages "
            "of a pipeline with m micro-batches are slow, about none of a victim's",
        ),
    },
)
def late_culprits() -> str:
    """The ranks that are late in slow rounds of their own making."""
    return f"""
        WITH {_callers()},
        hidden AS (  -- groups in which a member left no data, or is not known
            SELECT job, comm FROM members ANTI JOIN witnesses USING (job, rank)
            UNION SELECT job, comm FROM members WHERE size IS NULL)
        SELECT * FROM callers l
        WHERE coalesce(own_share >= $own_share, true)
            -- Calls alone do not show what a rank waited for in Send and Recv.
            AND NOT (basis = 'arrival'
                AND l.job IN (SELECT job FROM operations WHERE kind = 'p2p'))
            -- Nor whom a rank waited for in a group of which a member left no data, if the others
            -- are not all in it, too.
            AND NOT (basis = 'arrival' AND EXISTS (
                FROM members h SEMI JOIN hidden USING (job, comm)
                WHERE h.job = l.job AND h.rank = l.rank AND h.comm <> l.comm
                    AND (SELECT count(*) FROM members a JOIN members b USING (job, rank)
                         WHERE a.job = l.job AND a.comm = l.comm AND b.comm = h.comm)
                        < (SELECT count(*) FROM members a
                           WHERE a.job = l.job AND a.comm = l.comm)))
    """


@relation(
    "slow_round_transfers",
    reads=["slow_rounds", "members"],
    empty_without=["slow_rounds"],
    columns=[
        "job comm",
        ("rounds", "BIGINT", "rounds", "slow rounds that show it"),
        ("at_ns", "BIGINT", "ns", "first entry of the first of them"),
        ("until_ns", "BIGINT", "ns", "of the last of them, if it is over"),
        ("cost_ns", "BIGINT", "ns", "by how much their transfers took longer, in total"),
        ("rank", "INTEGER", "", "the only rank that all slow communicators have in common"),
    ],
    source="CCL-D 4.2.2, Fig. 7",
    params={
        "beta": Param(0.6, "P above this: the computation is slow (CCL-D 4.2.2)"),
        "repeat": "late_culprits.repeat",
        "cost_share": "lost_time.least_gain",
        "stands_out": "lost_time.stands_out",
    },
)
def slow_round_transfers() -> str:
    """Communicators that transfer slowly; the one that costs most of those that share one rank."""
    # A slow link slows every communicator of its rank, and of each of the others only one.
    return """
        WITH groups AS (
            SELECT s.job, s.comm, count(*) AS rounds, min(s.at_ns) AS at_ns,
                CASE WHEN max(s.until_ns) - max(s.at_ns) > $stands_out * max(s.rest_ns)
                    THEN max(s.at_ns) END AS until_ns,
                sum(s.stands_for * (t_min_ns - transfer_ns))::BIGINT AS cost_ns
            FROM (SELECT *, at_ns - lag(at_ns) OVER (
                      PARTITION BY job, comm, stretched OR p <= $beta ORDER BY at_ns) AS rest_ns
                  FROM slow_rounds WHERE basis = 'duration') s
            WHERE (s.stretched OR s.p <= $beta)
                -- A member that is not seen may be the last to arrive: then the rest only wait.
                AND s.ranks >= (
                    SELECT count(*) FROM members m WHERE m.job = s.job AND m.comm = s.comm)
            GROUP BY s.job, s.comm
            HAVING count(*) >= $repeat
                AND cost_ns >= $cost_share * (max(s.until_ns) - min(s.at_ns))),
        shared AS (
            SELECT m.job, m.rank, count(*) AS comms,
                count(*) = (SELECT count(*) FROM groups a WHERE a.job = m.job) AS in_all
            FROM groups g JOIN members m USING (job, comm) GROUP BY m.job, m.rank),
        common AS (
            SELECT job, any_value(rank) AS rank FROM shared WHERE in_all AND comms > 1
            GROUP BY job HAVING count(*) = 1)
        SELECT * FROM groups LEFT JOIN common USING (job)
        QUALIFY rank IS NULL
            OR row_number() OVER (PARTITION BY job ORDER BY cost_ns DESC, comm) = 1
    """
