"""Rounds that took far longer than the baseline of their communicator (CCL-D 4.2.1, eq. 1-3).

The baseline T_base is the mean of the first rounds of one kind, R how far a round exceeds it, and P
which part of that is waiting for the last member. Jobs that are replayed are left out: there the
lost time of iterations says more.
"""

from __future__ import annotations

from oncall.evidence import Param, relation

_SHAPE = [
    ("job", "VARCHAR", "", "the job"),
    ("comm", "UBIGINT", "", "communicator"),
    ("op", "VARCHAR", "", "operation"),
    ("bytes", "BIGINT", "bytes", "its size; elements where bytes are unknown"),
]
_TIMES = [
    ("seq", "BIGINT", "", "the round: operation number"),
    ("at_ns", "BIGINT", "ns", "first entry"),
    ("ranks", "INTEGER", "ranks", "members whose time is known"),
    ("t_max_ns", "BIGINT", "ns", "longest time in it (CCL-D T_max of the round)"),
    ("t_min_ns", "BIGINT", "ns", "shortest time in it"),
    ("last_rank", "INTEGER", "", "the member with the shortest time: the last to arrive"),
    ("basis", "VARCHAR", "", "duration; or arrival, where the transfer is not known"),
    ("stands_for", "INTEGER", "rounds", "number of rounds that this one represents"),
    ("first_ns", "BIGINT", "ns", "first entry of the first round of its kind"),
    ("until_ns", "BIGINT", "ns", "first entry of the job's last round"),
]


@relation(
    "numbered_rounds",
    reads=["rounds", "replayed_jobs"],
    empty_without=["rounds"],
    columns=[
        *_SHAPE,
        *_TIMES,
        ("number", "BIGINT", "", "the how many-th round of its kind on its communicator"),
        ("total", "BIGINT", "rounds", "rounds of its kind on its communicator"),
    ],
    source="CCL-D 4.2.1",
    params={
        "barrier_below": "progress_symptoms.barrier_below",
        "known": "lost_time.nearly_all",
    },
)
def numbered_rounds() -> str:
    """The rounds of jobs that are not replayed, numbered by kind, without barriers and those of
    which too few members are recorded, as at the begin of ring buffers."""
    # At a barrier ranks rightly wait for one another.
    return """
        SELECT *, row_number() OVER shape AS number,
            max(at_ns) OVER (PARTITION BY job) AS until_ns, min(at_ns) OVER shape AS first_ns,
            count(*) OVER (PARTITION BY job, comm, op, bytes) AS total
        FROM (
            FROM rounds ANTI JOIN replayed_jobs USING (job)
            QUALIFY ranks >= $known * max(ranks) OVER (PARTITION BY job, comm))
        WHERE op <> 'Barrier'
            AND NOT (op = 'AllReduce' AND coalesce(bytes, $barrier_below) < $barrier_below)
        WINDOW shape AS (PARTITION BY job, comm, op, bytes ORDER BY at_ns, seq)
    """


@relation(
    "round_baselines",
    reads=["numbered_rounds", "members", "operations"],
    empty_without=["numbered_rounds"],
    columns=[
        *_SHAPE,
        ("base_source", "VARCHAR", "", "configured, siblings, last arriver or measured"),
        ("first_rounds", "BIGINT", "rounds", "rounds that were averaged"),
        ("until", "BIGINT", "", "the last of them, where the baseline is measured; else 0"),
        ("base_ns", "DOUBLE", "ns", "T_base: what a round takes"),
        ("wait_ns", "DOUBLE", "ns", "of that, what its members wait for the last one"),
        ("transfer_ns", "DOUBLE", "ns", "what the transfer alone takes; NULL: not measured"),
    ],
    source="CCL-D 4.2.1, 4.2.2",
    params={
        "baseline_rounds": "arrivals.offset_rounds",
        "baseline_part": "arrivals.offset_part",
        "baseline_for": Param("2 min", "... or those in this time, if fewer (CCL-D 4.2.1)"),
        "expected_round": Param(
            "0 s",
            "T_base for the time before there is one, from experience with such models; 0: not "
            "configured",
        ),
        "outlier": Param(
            5,
            "maxima above this many medians are hiccups or warm-up and would hide every later "
            "slowdown",
        ),
        "groups_compared": "lost_time.few",
        "off_siblings": Param(
            2,
            "a baseline this many times that of the sibling groups is itself slow: jitter never "
            "doubles a mean",
        ),
        "least_rounds": Param(
            10,
            "fewer first rounds, those of its siblings counted, are no baseline, only a start",
        ),
        "always": "lost_time.nearly_all",
    },
)
def round_baselines() -> str:
    """What rounds of each kind take on each communicator, and what that is taken from."""
    # A group slow from its first round has no baseline of its own worth having. Its siblings have;
    # and where one and the same rank is always the last, its own short time is the transfer
    # (CCL-D 4.2.2).
    return """
        WITH first AS (
            SELECT *, median(t_max_ns) OVER (PARTITION BY job, comm, op, bytes) AS median_ns
            FROM numbered_rounds
            WHERE number <= least($baseline_rounds, greatest(1, total // $baseline_part))
                AND at_ns <= first_ns + $baseline_for),
        -- Members all do the same work where they do not span pipeline stages, as the whole job
        -- does.
        alike AS (
            SELECT job, comm, any_value(role) AS role, any_value(size) AS size,
                count(*) >= $groups_compared AND (
                    count(*) < (SELECT count(DISTINCT rank) FROM members w WHERE w.job = m.job)
                    OR NOT EXISTS (FROM operations o WHERE o.job = m.job AND o.kind = 'p2p'))
                    AS alike
            FROM members m GROUP BY job, comm),
        own AS (
            SELECT job, comm, op, bytes, max(number) AS until, any_value(basis) AS basis,
                avg(t_max_ns) FILTER (t_max_ns <= $outlier * median_ns) AS base_ns,
                avg(t_max_ns - t_min_ns) FILTER (t_max_ns <= $outlier * median_ns) AS wait_ns,
                median(t_min_ns) AS transfer_ns,
                list_max(map_values(histogram(last_rank))) / count(*) AS same_last
            FROM first GROUP BY ALL),
        beside AS (
            SELECT o.*, coalesce(a.alike, false) AS alike,
                median(o.base_ns) OVER siblings AS common_ns, count(*) OVER siblings AS groups,
                median(o.transfer_ns) OVER siblings AS common_transfer_ns,
                count(*) FILTER (o.same_last >= $always) OVER siblings AS with_same_last
            FROM own o LEFT JOIN alike a USING (job, comm)
            WINDOW siblings AS (PARTITION BY o.job, o.op, o.bytes, a.role, a.size)),
        chosen AS (
            SELECT *, CASE WHEN $expected_round > 0 THEN 'configured'
                WHEN groups >= $groups_compared AND base_ns > $off_siblings * common_ns
                    THEN 'siblings'
                -- Where most groups have one, as those across pipeline stages do, it is the design.
                WHEN basis = 'duration' AND alike AND same_last >= $always
                    AND until >= $least_rounds
                    AND (groups = 1 OR 2 * with_same_last <= groups) THEN 'last arriver'
                ELSE 'measured' END AS base_source
            FROM beside)
        SELECT job, comm, op, bytes, base_source, until AS first_rounds,
            CASE base_source WHEN 'measured' THEN until ELSE 0 END AS until,
            greatest(1, CASE base_source WHEN 'configured' THEN $expected_round
                WHEN 'siblings' THEN common_ns WHEN 'last arriver' THEN transfer_ns
                -- Calls alone do not show the transfer, so a quiet group's base would be next to
                -- nothing.
                ELSE CASE WHEN basis = 'arrival' THEN greatest(base_ns, common_ns)
                    ELSE base_ns END END) AS base_ns,
            CASE base_source WHEN 'measured' THEN wait_ns ELSE 0 END AS wait_ns,
            CASE WHEN basis = 'duration' THEN CASE base_source WHEN 'siblings'
                THEN common_transfer_ns WHEN 'configured' THEN NULL ELSE transfer_ns END
                END AS transfer_ns
        FROM chosen
        WHERE base_source = 'configured'
            OR until * CASE WHEN alike THEN groups ELSE 1 END >= $least_rounds
    """


@relation(
    "slow_rounds",
    reads=["numbered_rounds", "round_baselines"],
    empty_without=["numbered_rounds"],
    columns=[
        *_SHAPE,
        *_TIMES,
        ("base_ns", "DOUBLE", "ns", "T_base: what a round takes"),
        ("wait_ns", "DOUBLE", "ns", "of that, what its members wait for the last one"),
        ("transfer_ns", "DOUBLE", "ns", "of that, what the transfer alone takes"),
        ("stretched", "BOOLEAN", "", "the transfer alone exceeds its baseline that far"),
        ("r", "DOUBLE", "ratio", "R: how far it exceeds the baseline (CCL-D eq. 3)"),
        ("p", "DOUBLE", "ratio", "P: which part of that was waiting (CCL-D eq. 4)"),
    ],
    source="CCL-D 4.2.1 eq. 1-3, 4.2.2 eq. 4",
    params={
        "slow_ratio": Param(
            3,
            "a round is slow when R = (T_max - T_base) / T_base is above this; in practice close "
            "to 3 (CCL-D 4.2.1)",
        ),
        "noticeable": Param("500 us", "smaller delays are scheduling noise and cost a job nothing"),
    },
)
def slow_rounds() -> str:
    """Rounds that took far longer than their baseline, or whose transfer alone did."""
    # Members that always wait for one another hide from T_max what the transfer has lost.
    return """
        WITH compared AS (
            SELECT n.*, b.base_ns, b.wait_ns, coalesce(b.transfer_ns, b.base_ns) AS transfer_ns,
                n.basis = 'duration' AND t_min_ns - b.transfer_ns
                    > greatest($slow_ratio * b.transfer_ns, $noticeable) AS stretched
            FROM numbered_rounds n JOIN round_baselines b USING (job, comm, op, bytes)
            WHERE n.number > b.until AND n.t_max_ns > b.base_ns)
        SELECT *, (t_max_ns - base_ns) / base_ns AS r,
            least(1, (t_max_ns - t_min_ns) / (t_max_ns - base_ns)) AS p
        FROM compared
        WHERE stretched OR t_max_ns - base_ns > greatest($slow_ratio * base_ns, $noticeable)
    """
