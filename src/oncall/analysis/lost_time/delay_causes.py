"""Jobs whose iterations were replayed, and what each cause of delay costs, by all witnesses.

Why a rank is late, where a profile shows it: what takes longer on it than on its peers.

Like is compared with like: what ran in the same step, under the same name, with the same shape and
as often. Data loading, garbage collection and slow launches leave a device idle as well, so that
the narrower reason counts.
"""

from __future__ import annotations

from oncall.evidence import Param, relation

# In names of kernels and operators that multiply matrices, which is most of what GPUs do.
_MATRIX = r"gemm|cutlass|xmma|wgmma|aten::(mm|addmm|bmm|baddbmm|matmul|linear)\b"


def _kinds() -> str:
    """How long each kind of work takes each rank, its peers, and the rank that it takes longest
    beside it."""
    return f"""
        alike AS (
            SELECT job, rank, iteration, kind, name, spent_ns,
                median(spent_ns) OVER peers AS peers_ns
            FROM profiled_work WHERE kind != 'wait'
            WINDOW peers AS (PARTITION BY job, iteration, kind, name, count
                ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING EXCLUDE CURRENT ROW)),
        summed AS (
            SELECT job, rank, kind, sum(spent_ns) AS spent_ns, sum(peers_ns) AS peers_ns,
                sum(spent_ns - peers_ns) AS excess_ns,
                sum(spent_ns - peers_ns) FILTER (regexp_matches(lower(name), '{_MATRIX}'))
                    >= $mostly * sum(spent_ns - peers_ns) AS of_matrices,
                max_by(name, spent_ns - peers_ns) AS example
            FROM alike WHERE peers_ns IS NOT NULL GROUP BY ALL),
        kinds AS (
            SELECT *, spent_ns / nullif(peers_ns, 0) AS times,
                max(excess_ns) OVER (PARTITION BY job, kind
                    ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING EXCLUDE CURRENT ROW
                ) AS next_ns,
                bool_or(kind = 'kernel') OVER rank AS device,
                max(times) FILTER (kind = 'launch') OVER rank AS launch_times,
                spent_ns / max(spent_ns) FILTER (kind = 'step') OVER rank AS part,
                peers_ns / max(peers_ns) FILTER (kind = 'step') OVER rank AS peers_part
            FROM summed WINDOW rank AS (PARTITION BY job, rank))
    """


@relation(
    "delay_reasons",
    reads=["lost_time"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("rank", "INTEGER", "", "a rank that the others wait for, or may wait for"),
        ("kind", "VARCHAR", "", "of work, as in profiled_work; python: idle, no device recorded"),
        ("work", "VARCHAR", "", "the kind, or matrix kernel and operator where most of it is"),
        ("example", "VARCHAR", "", "the kernel or operator that takes most of it"),
        ("part", "DOUBLE", "ratio", "of the rank's time"),
        ("peers_part", "DOUBLE", "ratio", "of its peers' time"),
        ("times", "DOUBLE", "ratio", "as long as on peers"),
        ("launch_times", "DOUBLE", "ratio", "the same of its launches of kernels"),
    ],
    source="beyond the papers",
    params={"mostly": "lost_time.mostly", "stands_out": "lost_time.stands_out"},
)
def delay_reasons() -> str:
    """The narrowest kind of work that takes a rank longer than its peers by most of what it costs,
    and by far more than any other rank."""
    return f"""
        WITH {_kinds()},
        late AS (
            SELECT job, rank, max(gain_ns) AS gain_ns FROM lost_time
            WHERE cause IN ('own', 'perhaps') GROUP BY ALL),
        reasons AS (
            SELECT DISTINCT ON (job, rank) * FROM kinds JOIN late USING (job, rank)
            WHERE excess_ns >= $mostly * gain_ns AND excess_ns >= $stands_out * greatest(next_ns, 0)
            ORDER BY job, rank, list_position(
                ['loader', 'garbage', 'launch', 'kernel', 'operator', 'idle'], kind))
        SELECT job, rank, if(kind = 'idle' AND NOT device, 'python', kind) AS kind,
            if(of_matrices, 'matrix ', '') || kind AS work, example, part, peers_part, times,
            launch_times
        FROM reasons
    """


@relation(
    "replayed_jobs",
    reads=["lost_time"],
    columns=[
        ("job", "VARCHAR", "", "a job whose iterations can be replayed"),
        ("iterations", "INTEGER", "", "that the account covers"),
        ("iteration_ns", "BIGINT", "ns", "median length of one"),
        ("replay_error", "DOUBLE", "ratio", "median error of replayed lengths; NULL: not replayed"),
        ("timed", "BOOLEAN", "", "the durations of operations are recorded"),
        ("whole", "BOOLEAN", "", "what the account does not name costs nothing"),
    ],
    source="LOST_TIME section 4: the replay with nothing removed against what was measured",
)
def replayed_jobs() -> str:
    """Jobs of which it is known what made iterations longer than they had to be. Where transfers of
    like groups clearly differ, and the account names nobody, it does not have all of it."""
    return """
        SELECT job, iterations, iteration_ns, replay_error, timed, whole AND (
                job IN (SELECT job FROM lost_time WHERE cause IN ('own', 'transfer'))
                OR job NOT IN (SELECT job FROM group_delays WHERE beside)) AS whole
        FROM lost_time WHERE cause = 'account'
    """


@relation(
    "delay_witnesses",
    reads=["operations"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("entry", "INTEGER", "", "number of the cause; below 0: groups alike in their transfers"),
        (
            "cause",
            "VARCHAR",
            "",
            "own: work of the rank; transfer: what it sends and receives; turns: work, by turns",
        ),
        ("shown_by", "VARCHAR", "", "what shows it, as in lost_time"),
        ("rank", "INTEGER", "", "global rank; several if the evidence cannot tell them apart"),
        ("comm", "UBIGINT", "", "the communicator whose members are all alike; else NULL"),
        ("tied", "INTEGER", "ranks", "how many share the cost"),
        ("share", "DOUBLE", "ratio", "iterations concerned would be so much shorter without it"),
        ("low", "DOUBLE", "ratio", "5 % quantile of the share"),
        ("high", "DOUBLE", "ratio", "95 % quantile of the share"),
        ("lost_share", "DOUBLE", "ratio", "of all time since it began, what would not be lost"),
        ("iterations", "INTEGER", "", "concerned"),
        ("of_iterations", "INTEGER", "", "in the account"),
        ("gain_ns", "BIGINT", "ns", "lost in all of them"),
        ("at_ns", "BIGINT", "ns", "begin of the first one"),
        ("until_ns", "BIGINT", "ns", "end of the last one, if it is over"),
        ("replay_error", "DOUBLE", "ratio", "of the account"),
        ("timed", "BOOLEAN", "", "the durations of operations are recorded"),
        ("declined", "VARCHAR", "", "ways to find causes that name nobody, and why"),
    ],
    source="LOST_TIME section 8; CCL-D 4.2.2 for rates",
    params={
        "most_causes": "lost_time.most_causes",
        "hiccup": "lost_time.hiccup",
    },
)
def delay_witnesses() -> str:
    """Entries of the account; and where there is none, or it names nobody, groups whose transfers
    take longer than those of like groups, and what slow rounds show."""
    return """
        WITH accounts AS (SELECT job, until_ns FROM lost_time WHERE cause = 'account'),
        accounted AS (
            SELECT l.job, l.entry, l.cause, l.rank, l.share, l.low, l.high, l.iterations,
                l.of_iterations, l.gain_ns, l.at_ns, l.until_ns, l.replay_error, l.timed,
                l.shown_by,
                least(l.share, l.gain_ns / greatest(
                    a.until_ns - l.at_ns, l.iterations * l.iteration_ns)) AS lost_share, l.declined,
                l.tied
            FROM lost_time l LEFT JOIN accounts a USING (job)
            WHERE l.cause IN ('own', 'transfer', 'turns')),
        spans AS (
            SELECT job, nullif(max(at_ns) - min(at_ns), 0) AS span_ns FROM rounds GROUP BY job),
        slow_groups AS (
            SELECT job, comm, 'groups' AS shown_by, sum(lost_share) AS share, sum(lost_low) AS low,
                sum(lost_high) AS high, max(parts) AS iterations,
                sum(lost_ns)::BIGINT AS gain_ns, min(at_ns) AS at_ns
            FROM (FROM group_delays WHERE unseen IS NULL) ANTI JOIN accounted USING (job)
            ANTI JOIN (FROM slow_round_transfers WHERE rank IS NOT NULL) USING (job)
            GROUP BY job, comm HAVING gain_ns >= $hiccup
            UNION ALL BY NAME
            SELECT DISTINCT ON (job, comm) job, comm, 'rounds' AS shown_by,
                cost_ns / span_ns AS share, rounds AS iterations, cost_ns AS gain_ns, at_ns,
                until_ns
            FROM slow_round_transfers JOIN spans USING (job) WHERE rank IS NULL
            ORDER BY job, comm, cost_ns DESC),
        places AS (  -- groups of the same hosts share what connects these: it is one loss
            SELECT job, comm, CASE WHEN count(node) = count(*)
                THEN list(DISTINCT node ORDER BY node)::VARCHAR ELSE comm::VARCHAR END AS place
            FROM members GROUP BY job, comm),
        slowed AS (
            SELECT g.job, -dense_rank() OVER (ORDER BY g.job, shown_by, place) AS entry,
                'transfer' AS cause, m.rank, g.comm, max(share) OVER here AS share,
                max(share) OVER here AS lost_share, max(low) OVER here AS low,
                max(high) OVER here AS high, max(iterations) OVER here AS iterations,
                max(gain_ns) OVER here AS gain_ns, min(at_ns) OVER here AS at_ns,
                CASE WHEN bool_and(until_ns IS NOT NULL) OVER here
                    THEN max(until_ns) OVER here END AS until_ns,
                true AS timed, shown_by, count(*) OVER here AS tied
            FROM slow_groups g JOIN places USING (job, comm) JOIN members m USING (job, comm)
            WINDOW here AS (PARTITION BY g.job, shown_by, place)),
        in_rounds AS (  -- a rank, in the communicator that it costs most
            SELECT job, 'own' AS cause, rank, rounds, at_ns, until_ns, cost_ns,
                basis = 'duration' AS timed
            FROM late_culprits
            UNION ALL BY NAME
            SELECT job, 'transfer' AS cause, rank, rounds, at_ns, until_ns, cost_ns, true AS timed
            FROM slow_round_transfers WHERE rank IS NOT NULL
            QUALIFY row_number() OVER (PARTITION BY job, cause, rank ORDER BY cost_ns DESC) = 1),
        slow_in_rounds AS (
            SELECT job, $most_causes + dense_rank() OVER (ORDER BY cause, rank) AS entry, cause,
                rank, cost_ns / span_ns AS lost_share, cost_ns / span_ns AS share,
                rounds AS iterations, cost_ns AS gain_ns, at_ns, until_ns, timed,
                'rounds' AS shown_by, 1 AS tied
            FROM in_rounds JOIN spans USING (job))
        FROM accounted UNION ALL BY NAME FROM slowed UNION ALL BY NAME FROM slow_in_rounds
    """


def _placed() -> str:
    """Where each rank is, and how many a job has."""
    return """
        placed AS (
            SELECT DISTINCT ON (job, rank) job, rank, node, nic FROM members
            ORDER BY ALL),
        sizes AS (SELECT job, count(*) AS of_ranks FROM placed GROUP BY job)
    """


def _slowest() -> str:
    """The causes; of ranks that share all slow transfers the one that, by rates, sends and receives
    most slowly, on a tree within its layer (CCL-D Fig. 7)."""
    return """
        tied AS (FROM delay_witnesses WHERE cause = 'transfer' AND tied > 1),
        common AS (  -- the slow communicator, else all that all of them are in
            SELECT t.job, t.entry, m.comm FROM tied t JOIN members m
                ON m.job = t.job AND m.rank = t.rank AND m.comm = coalesce(t.comm, m.comm)
            GROUP BY ALL HAVING count(DISTINCT t.rank) = any_value(t.tied)),
        rated AS (
            SELECT t.job, t.entry, t.rank, least(o.send_rate, o.recv_rate) AS rate,
                rate * (count(rate) OVER peers - 1) / nullif(sum(rate) OVER peers - rate, 0)
                    AS ratio
            FROM tied t JOIN common c USING (job, entry)
            JOIN operations o ON o.job = t.job AND o.comm = c.comm AND o.rank = t.rank
                AND o.entered_ns >= t.at_ns
            LEFT JOIN layers l ON l.job = o.job AND l.comm = o.comm AND l.rank = o.rank
            WHERE o.kind = 'coll' AND o.done
            WINDOW peers AS (PARTITION BY t.job, t.entry, o.comm, o.seq, l.layer)),
        slowest AS (
            SELECT job, entry, rank FROM (
                SELECT job, entry, rank, median(ratio) AS ratio FROM rated GROUP BY ALL)
            QUALIFY ratio < $rate_below AND ratio = min(ratio) OVER (PARTITION BY job, entry)),
        causes AS (
            SELECT w.* REPLACE (if(s.rank IS NULL, tied, 1) AS tied,
                if(s.rank IS NULL, comm, NULL) AS comm)
            FROM delay_witnesses w LEFT JOIN slowest s USING (job, entry)
            WHERE CASE WHEN s.rank IS NULL
                -- A slow link slows every communicator of its rank.
                THEN comm IS NULL OR job NOT IN (SELECT job FROM slowest) ELSE s.rank = w.rank END)
    """


def _sets() -> str:
    """The ranks of each cause: what they are called, whether they are all of one part of a machine
    or of the job, and whether only one of them may be the cause."""
    return """
        parts AS (
            SELECT job, 'host ' || node AS together, list(DISTINCT rank) AS ranks
            FROM placed WHERE node IS NOT NULL GROUP BY job, node
            UNION ALL SELECT job, 'stage ' || stage, list(DISTINCT rank)
            FROM stage_layout WHERE stage IS NOT NULL GROUP BY job, stage
            UNION ALL SELECT job, coalesce(any_value(role), any_value(name), 'a communicator'),
                list(DISTINCT rank)
            FROM members GROUP BY job, comm),
        listed AS (
            SELECT job, entry, any_value(cause) AS cause, min(comm) AS comm,
                count(DISTINCT comm) AS groups, list(DISTINCT rank ORDER BY rank) AS ranks,
                len(ranks) AS number, max(rank) - min(rank) + 1 = number AS in_a_row,
                min(rank) % number = 0 AS aligned, count(node) = 0 AS nowhere,
                min(node) AS first_node, max(node) AS last_node
            FROM causes LEFT JOIN placed USING (job, rank) GROUP BY job, entry),
        whole AS (
            SELECT DISTINCT ON (l.job, l.entry) l.job, l.entry, p.together
            FROM listed l JOIN parts p ON p.job = l.job AND list_sort(p.ranks) = l.ranks
            WHERE l.number > 1
            ORDER BY l.job, l.entry, NOT starts_with(p.together, 'host'), p.together),
        names AS (  -- two of one name would be one suspect
            SELECT job, comm, CASE WHEN count(*) OVER (PARTITION BY job, any_value(name)) = 1
                THEN any_value(name) END AS own_name
            FROM members GROUP BY job, comm),
        sets AS (
            SELECT job, entry, of_ranks, together,
                CASE WHEN groups > 1 THEN groups || ' communicators on ' || first_node
                        || if(first_node <> last_node, ' to ' || last_node, '')
                    WHEN groups = 1
                        THEN 'communicator ' || coalesce(own_name, printf('0x%x', comm))
                    WHEN number = 1 THEN 'rank ' || ranks[1]
                    WHEN in_a_row AND number > 2 THEN 'ranks ' || ranks[1] || '-' || ranks[-1]
                    WHEN number <= $few THEN 'ranks ' || list_aggregate(ranks, 'string_agg', ', ')
                    ELSE 'ranks ' || list_aggregate(ranks[:3], 'string_agg', ', ') || ', … '
                        || ranks[-1] || ' (' || number || ' ranks)'
                    END AS suspect,
                number > 1 AND comm IS NULL AND (cause = 'transfer' OR (together IS NULL
                    AND NOT (nowhere AND in_a_row AND aligned AND number <= $few)))
                    AS one_of_them,
                NOT one_of_them OR number <= least($few, $part * of_ranks) AS located
            FROM listed LEFT JOIN whole USING (job, entry) LEFT JOIN sizes USING (job)
            LEFT JOIN names USING (job, comm))
    """


@relation(
    "delay_causes",
    reads=["delay_witnesses"],
    empty_without=["delay_witnesses"],
    columns=[
        "job",
        ("suspect", "VARCHAR", "", "who has the cost, as a sentence names it"),
        "cause shown_by rank comm",
        ("node", "VARCHAR", "", "its host"),
        ("nic", "VARCHAR", "", "its RDMA device"),
        "tied",
        ("of_ranks", "INTEGER", "ranks", "the job has"),
        ("together", "VARCHAR", "", "the host, stage or communicator whose ranks they are"),
        (
            "one_of_them",
            "BOOLEAN",
            "",
            "any of the tied ranks may be the cause: they share all slow transfers, or come late "
            "together and are no part of a machine or of the job",
        ),
        ("located", "BOOLEAN", "", "it is not one of so many that nobody is named"),
        "share low high lost_share",
        ("lost_low", "DOUBLE", "ratio", "5 % quantile of that"),
        ("lost_high", "DOUBLE", "ratio", "95 % quantile of that"),
        "iterations of_iterations gain_ns at_ns until_ns replay_error timed declined",
    ],
    source="LOST_TIME section 8; CCL-D 4.2.2 for rates",
    params={
        "rate_below": Param(0.8, "a rank within 20 % of its peers' mean rate is not singled out"),
        "part": "lost_time.ordinary",
        "few": Param(
            8,
            "the GPUs of a host: ranks to look at one by one, or a communicator within it; where "
            "hosts are not recorded, neighbours up to this share one",
        ),
    },
)
def delay_causes() -> str:
    """What iterations would gain without each cause, by the ranks that have it."""
    return f"""
        WITH {_placed()}, {_slowest()}, {_sets()}
        SELECT l.job, s.suspect, l.cause, l.shown_by, l.rank, l.comm, p.node, p.nic, l.tied,
            s.of_ranks, s.together, s.one_of_them, s.located, l.share, l.low, l.high,
            l.lost_share, l.lost_share * l.low / l.share AS lost_low,
            l.lost_share * l.high / l.share AS lost_high,
            l.iterations, l.of_iterations, l.gain_ns, l.at_ns, l.until_ns, l.replay_error, l.timed,
            l.declined
        FROM causes l JOIN sets s USING (job, entry)
        LEFT JOIN placed p USING (job, rank)
    """
