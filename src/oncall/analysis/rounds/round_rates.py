"""Who transfers slowly in slow rounds (CCL-D 4.2.2, Fig. 7).

Where P is low a slow round is a slow transfer. Each member's send and receive rate is compared with
its own in the first rounds, then with what is left of its peers'; without rates the communicator as
a whole is slow.
"""

from __future__ import annotations

from oncall.evidence import Param, relation

_SLOW = [
    ("job", "VARCHAR", "", "the job"),
    ("comm", "UBIGINT", "", "communicator"),
    ("rounds", "BIGINT", "rounds", "slow rounds that were compared"),
    ("at_ns", "BIGINT", "ns", "first entry of the first of them"),
    ("seq", "BIGINT", "", "the longest"),
    ("op", "VARCHAR", "", "operation"),
    ("r", "DOUBLE", "ratio", "the largest R of them"),
    ("p", "DOUBLE", "ratio", "P of the longest"),
    ("t_max_ns", "BIGINT", "ns", "longest time in it"),
    ("base_ns", "DOUBLE", "ns", "its baseline"),
    ("base_source", "VARCHAR", "", "configured, siblings, last arriver or measured"),
    ("cost_ns", "BIGINT", "ns", "by how much transfers were longer, in total"),
    ("label", "VARCHAR", "", "what the communicator is for"),
]


@relation(
    "round_rates",
    reads=["slow_rounds", "numbered_rounds", "round_baselines", "operations", "layers"],
    empty_without=["slow_rounds"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("comm", "UBIGINT", "", "communicator"),
        ("seq", "BIGINT", "", "a slow round"),
        ("op", "VARCHAR", "", "operation"),
        ("at_ns", "BIGINT", "ns", "first entry"),
        ("rank", "INTEGER", "", "a member"),
        ("r", "DOUBLE", "ratio", "R: how far the round exceeds the baseline"),
        ("p", "DOUBLE", "ratio", "P: which part of that was waiting"),
        ("t_max_ns", "BIGINT", "ns", "longest time in it"),
        ("t_min_ns", "BIGINT", "ns", "shortest time in it"),
        ("base_ns", "DOUBLE", "ns", "its baseline"),
        ("base_source", "VARCHAR", "", "configured, siblings, last arriver or measured"),
        ("until_ns", "BIGINT", "ns", "first entry of the job's last round"),
        ("stands_for", "INTEGER", "rounds", "number of rounds that this one represents"),
        ("ratio", "DOUBLE", "ratio", "the member's rate, against the mean of its peers'"),
    ],
    source="CCL-D 4.2.2, Fig. 7",
    params={
        "slow_ratio": "slow_rounds.slow_ratio",
        "beta": Param(0.6, "P above this: the computation is slow (CCL-D 4.2.2)"),
    },
)
def round_rates() -> str:
    """Each member's rate in rounds whose transfer was slow, against its peers'."""
    # A rank without a baseline rate is compared as it is: on a tree, within its layer only.
    return """
        WITH stretched AS (
            SELECT * FROM slow_rounds WHERE basis = 'duration'
                AND (stretched OR p <= $beta
                    OR (t_min_ns - base_ns) / base_ns > (1 - $beta) * $slow_ratio)),
        baseline_rates AS (
            SELECT o.job, o.comm, o.op, n.bytes, o.rank,
                avg(least(o.send_rate, o.recv_rate)) AS baseline_rate
            FROM numbered_rounds n JOIN round_baselines b USING (job, comm, op, bytes)
            JOIN operations o ON o.job = n.job AND o.comm = n.comm AND o.seq = n.seq
                AND o.kind = 'coll' AND o.done
            WHERE n.number <= b.until GROUP BY ALL),
        measured AS (
            SELECT s.*, o.rank,
                least(o.send_rate, o.recv_rate) / coalesce(u.baseline_rate, 1) AS rate,
                CASE WHEN u.baseline_rate IS NULL AND o.algo ILIKE '%TREE%'
                    THEN coalesce(l.layer, 0) ELSE 0 END AS layer
            FROM stretched s
            JOIN operations o ON o.job = s.job AND o.comm = s.comm AND o.seq = s.seq
                AND o.kind = 'coll' AND o.done
            LEFT JOIN baseline_rates u ON u.job = s.job AND u.comm = s.comm AND u.op = s.op
                AND u.bytes IS NOT DISTINCT FROM s.bytes AND u.rank = o.rank
            LEFT JOIN layers l ON l.job = o.job AND l.comm = o.comm AND l.rank = o.rank)
        SELECT *,
            rate * (count(rate) OVER peers - 1) / nullif(sum(rate) OVER peers - rate, 0) AS ratio
        FROM measured
        WINDOW peers AS (PARTITION BY job, comm, seq, layer)
    """


@relation(
    "slow_round_links",
    reads=["round_rates", "members"],
    optional=["late_culprits"],
    empty_without=["round_rates"],
    columns=[
        *_SLOW,
        ("rank", "INTEGER", "", "the member with the lowest rate"),
        ("node", "VARCHAR", "", "its host"),
        ("nic", "VARCHAR", "", "its NIC"),
        ("ratio", "DOUBLE", "ratio", "median of its rate, against the mean of its peers'"),
        ("leader", "INTEGER", "", "the first of the ranks that are late together, or itself"),
    ],
    source="CCL-D 4.2.2, Fig. 7",
    params={
        "repeat": "late_callers.repeat",
        "cost_share": "late_callers.cost_share",
        "rate_below": Param(0.8, "a rank within 20 % of its peers' mean rate is not singled out"),
    },
)
def slow_round_links() -> str:
    """The member of each communicator that transfers most slowly."""
    return """
        WITH summed AS (
            SELECT job, comm, rank, count(*) AS rounds, median(ratio) AS ratio,
                min(at_ns) AS at_ns, arg_max(seq, longest) AS seq, arg_max(op, longest) AS op,
                max(r) AS r, arg_max(p, longest) AS p, max(t_max_ns) AS t_max_ns,
                arg_max(base_ns, longest) AS base_ns,
                arg_max(base_source, longest) AS base_source,
                sum(stands_for * (t_min_ns - base_ns))::BIGINT AS cost_ns,
                max(until_ns) AS until_ns
            FROM (SELECT *, (t_max_ns, -seq) AS longest FROM round_rates WHERE ratio IS NOT NULL)
            GROUP BY job, comm, rank
            HAVING count(*) >= $repeat),
        weakest AS (FROM summed QUALIFY ratio = min(ratio) OVER (PARTITION BY job, comm)),
        leaders AS (SELECT DISTINCT job, rank, leader FROM late_culprits)
        SELECT w.*, m.node, m.nic, coalesce(m.role, m.name, 'the communicator') AS label,
            coalesce(a.leader, w.rank) AS leader
        FROM weakest w LEFT JOIN members m USING (job, comm, rank)
        LEFT JOIN leaders a USING (job, rank)
        WHERE w.ratio < $rate_below AND w.cost_ns >= $cost_share * (w.until_ns - w.at_ns)
    """


@relation(
    "slow_round_groups",
    reads=["slow_rounds", "members"],
    optional=["slow_round_links"],
    empty_without=["slow_rounds"],
    columns=[
        *_SLOW,
        ("rank", "INTEGER", "", "the only one in all slow communicators of the job; else NULL"),
        ("ranks", "INTEGER[]", "", "the members, where no rank is"),
        ("members", "INTEGER[]", "", "the members of it; with a rank, of all slow ones"),
        ("kind", "VARCHAR", "", "rank or group: what is slow"),
        ("own_name", "VARCHAR", "", "its name, if no other communicator has that"),
        ("comm_name", "VARCHAR", "", "its name"),
    ],
    source="CCL-D 4.2.2",
    params={
        "alpha": "late_callers.alpha",
        "repeat": "late_callers.repeat",
        "cost_share": "late_callers.cost_share",
    },
)
def slow_round_groups() -> str:
    """Communicators whose members are all equally slow to transfer, where no rank stands out."""
    # A slow link slows every communicator of its rank, and of each of the others only one.
    return """
        WITH stretched AS (
            SELECT s.*, (t_max_ns, -seq) AS longest FROM slow_rounds s
            WHERE s.basis = 'duration' AND (s.stretched OR s.p < $alpha)
                AND NOT EXISTS (FROM slow_round_links c WHERE c.job = s.job)
                -- A member that is not seen may be the last to arrive: then the rest only wait.
                AND s.ranks >= (
                    SELECT count(*) FROM members m WHERE m.job = s.job AND m.comm = s.comm)),
        names AS (
            SELECT job, comm, any_value(name) AS comm_name,
                -- Two of one name would be one suspect.
                CASE WHEN count(*) OVER (PARTITION BY job, any_value(name)) = 1
                    THEN any_value(name) END AS own_name,
                coalesce(any_value(role), any_value(name), 'the communicator') AS label,
                list(rank ORDER BY rank) FILTER (rank IS NOT NULL) AS ranks
            FROM members GROUP BY job, comm),
        slow AS (
            SELECT s.job, s.comm, count(*) AS rounds, min(s.at_ns) AS at_ns,
                arg_max(s.seq, longest) AS seq, arg_max(s.op, longest) AS op, max(s.r) AS r,
                arg_max(s.p, longest) AS p, max(t_max_ns) AS t_max_ns,
                arg_max(base_ns, longest) AS base_ns, arg_max(base_source, longest) AS base_source,
                sum(s.stands_for * (t_min_ns - transfer_ns))::BIGINT AS cost_ns,
                any_value(m.label) AS label, any_value(m.ranks) AS members,
                any_value(m.comm_name) AS comm_name, any_value(m.own_name) AS own_name
            FROM stretched s LEFT JOIN names m USING (job, comm)
            GROUP BY s.job, s.comm
            HAVING count(*) >= $repeat
                AND cost_ns >= $cost_share * (max(s.until_ns) - min(s.at_ns))),
        several AS (SELECT job, count(*) AS comms FROM slow GROUP BY job HAVING comms > 1),
        shared AS (
            SELECT job, rank, count(*) AS comms
            FROM (SELECT job, unnest(members) AS rank FROM slow) GROUP BY ALL),
        common AS (
            SELECT job, any_value(rank) AS rank FROM shared JOIN several USING (job, comms)
            GROUP BY job HAVING count(*) = 1)
        SELECT * REPLACE (CASE WHEN rank IS NULL THEN members
                ELSE list_distinct(flatten(list(members) OVER (PARTITION BY job))) END AS members),
            CASE WHEN rank IS NULL THEN slow.members END AS ranks,
            CASE WHEN rank IS NULL THEN 'group' ELSE 'rank' END AS kind
        FROM slow LEFT JOIN common USING (job)
        QUALIFY rank IS NULL
            OR row_number() OVER (PARTITION BY job ORDER BY cost_ns DESC, comm) = 1
    """
