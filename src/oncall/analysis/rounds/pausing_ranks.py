"""Ranks that pause now and then: where in the iteration, and what accompanies the pauses.

What makes a rank late shows in when it is: a slow GPU at every operation, a data loader once an
iteration and always at the same place in it, garbage collection and allocation stalls at any place.
In each round, a rank's own time (outside all operations) is compared with that of its peers. If all
ranks of a node pause together, they have a common cause, and their pauses show no pattern of their
own.
"""

from __future__ import annotations

from oncall.evidence import Param, relation


def _late_rounds() -> str:
    """Each member of each round with its own time beside its peers'; `late`: the others waited for
    it, and its own time explains that."""
    return """
        own AS (
            SELECT job, comm, seq, rank, own_ns,
                (sum(own_ns) OVER r - own_ns) / nullif(count(own_ns) OVER r - 1, 0) AS mean_ns,
                median(own_ns) OVER r AS median_ns, count(own_ns) OVER r AS members
            FROM own_time WINDOW r AS (PARTITION BY job, comm, seq)),
        late_rounds AS (
            SELECT o.job, o.comm, o.rank, r.at_ns, o.own_ns,
                CASE WHEN members > $few THEN median_ns ELSE mean_ns END AS peers_ns,
                own_ns > $late * peers_ns AND own_ns - peers_ns > $least
                    AND own_ns - peers_ns > $explains * (r.t_max_ns - r.t_min_ns) AS late,
                CASE WHEN late THEN least(own_ns - peers_ns, r.t_max_ns - r.t_min_ns)
                    * coalesce(r.stands_for, 1) ELSE 0 END AS lost_ns
            FROM own o JOIN rounds r USING (job, comm, seq)
            WHERE own_ns IS NOT NULL)
    """


def _iterations() -> str:
    """How long an iteration of training takes: the time between calls of the collective that is
    rarest among those that are repeated all the time."""
    return """
        iterations AS (
            SELECT job, (last_ns - first_ns) / (rounds - 1) AS iteration_ns
            FROM (
                SELECT job, comm, op, bytes, rank, sum(coalesce(stands_for, 1)) AS rounds,
                    min(entered_ns) AS first_ns, max(entered_ns) AS last_ns,
                    max(max(entered_ns)) OVER j - min(min(entered_ns)) OVER j AS span_ns
                FROM operations WHERE kind = 'coll' AND entered_ns IS NOT NULL
                GROUP BY job, comm, op, bytes, rank WINDOW j AS (PARTITION BY job))
            WHERE rounds >= $least_rounds AND last_ns - first_ns > span_ns / 2
            QUALIFY row_number() OVER (PARTITION BY job ORDER BY rounds, comm, rank, op, bytes) = 1)
    """


@relation(
    "late_ranks",
    reads=["ranks"],
    columns=[
        "job rank node gpu",
        ("comm", "UBIGINT", "", "the communicator whose members wait for it most often"),
        ("at_ns", "BIGINT", "ns", "first late round"),
        ("late", "BIGINT", "rounds", "rounds it was late in"),
        ("pauses", "DOUBLE", "rounds", "how many pauses of equal length would cost as much: short "
         "ones beside a few long ones hardly count"),
        ("rounds", "BIGINT", "rounds", "rounds from the first of them on"),
        ("lost_share", "DOUBLE", "ratio", "of the time since, that the others waited for it"),
        ("excess_ns", "DOUBLE", "ns", "median of its own time beyond its peers', when late"),
        ("begins", "DOUBLE", "ratio", "share of late rounds that follow another communicator's: "
         "at one place of the iteration"),
        ("begins_overall", "DOUBLE", "ratio", "the same share of all its rounds"),
        ("iterations", "DOUBLE", "ratio", "late rounds for each iteration since"),
        ("every_ns", "DOUBLE", "ns", "median time between late rounds"),
        ("busy", "DOUBLE", "ratio", "its GPU's use since, less that of the others; NULL: no data"),
    ],
    source="beyond the papers; CCL-D 4.2.1 for who waits",
    params={
        "few": "lost_time.few",
        "late": Param(1.15, "times as long as peers, or as before: beyond ordinary jitter"),
        "least": Param("2 ms", "beyond its peers' own time: hosts scatter by less between calls"),
        "explains": "lost_time.mostly",
        "least_rounds": "late_culprits.repeat",
    },
)  # fmt: skip
def late_ranks() -> str:
    """Each rank that came late of its own making twice or more, with the rhythm of it."""
    return f"""
        WITH {_late_rounds()}, {_iterations()}, placed AS (
            SELECT *, lag(comm) OVER w IS DISTINCT FROM comm AS begins,
                at_ns - lag(CASE WHEN late THEN at_ns END IGNORE NULLS) OVER c AS since_ns
            FROM late_rounds
            WINDOW w AS (PARTITION BY job, rank ORDER BY at_ns, comm),
                c AS (PARTITION BY job, rank, comm ORDER BY at_ns)),
        first AS (
            SELECT job, rank, comm, min(at_ns) FILTER (late) AS first_ns, max(at_ns) AS last_ns
            FROM placed GROUP BY ALL HAVING count(*) FILTER (late) > 1),
        summed AS (
            SELECT p.job, p.rank, p.comm, any_value(first_ns) AS at_ns,
                count(*) FILTER (p.late) AS late, count(*) AS rounds,
                sum(lost_ns) AS lost_ns, pow(sum(lost_ns), 2) / sum(pow(lost_ns, 2)) AS pauses,
                any_value(last_ns) - any_value(first_ns) AS span_ns,
                median(own_ns - peers_ns) FILTER (p.late) AS excess_ns,
                avg(begins::INTEGER) FILTER (p.late) AS begins,
                avg(begins::INTEGER) AS begins_overall,
                median(since_ns) FILTER (p.late) AS every_ns
            FROM placed p JOIN first f USING (job, rank, comm) WHERE p.at_ns >= first_ns
            GROUP BY ALL),
        -- A delay passes on to other communicators: the one with most rounds tells the rhythm.
        chosen AS (
            SELECT * FROM (
                SELECT *, max(lost_ns) OVER (PARTITION BY job, rank) AS most_ns FROM summed)
            WHERE lost_ns >= most_ns / 2
            QUALIFY row_number() OVER (PARTITION BY job, rank ORDER BY rounds DESC, comm) = 1),
        placed_ranks AS (
            SELECT DISTINCT ON (job, rank) job, rank, node, gpu FROM members ORDER BY ALL),
        used AS (
            SELECT c.job, c.rank,
                avg(g.utilisation) FILTER (g.node = m.node AND g.gpu = m.gpu)
                    - avg(g.utilisation) FILTER (g.node <> m.node OR g.gpu <> m.gpu) AS busy
            FROM chosen c JOIN placed_ranks m USING (job, rank)
            JOIN gpu_states g ON g.at_ns >= c.at_ns GROUP BY ALL)
        SELECT c.*, m.node, m.gpu,
            lost_ns / nullif(span_ns, 0) AS lost_share,
            late * i.iteration_ns / nullif(span_ns, 0) AS iterations, u.busy
        FROM chosen c JOIN placed_ranks m USING (job, rank)
        LEFT JOIN iterations i USING (job)
        LEFT JOIN used u USING (job, rank)
    """


@relation(
    "pausing_ranks",
    reads=["ranks", "late_ranks", "process_symptoms"],
    empty_without=["late_ranks"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("rank", "INTEGER", "", "a rank that is late now and then, and is not fed meanwhile"),
        "node gpu nic pid comm",
        ("at_ns", "BIGINT", "ns", "first pause"),
        ("excess_ns", "DOUBLE", "ns", "median length of a pause"),
        ("every_ns", "DOUBLE", "ns", "median time between two"),
        ("habit", "VARCHAR", "", "loading: where steps begin, in most of them; collecting: at any "
         "place, in some; NULL: neither, or many of its node do alike"),
        ("busier", "BOOLEAN", "", "its process, with its loader's workers, uses far more CPUs"),
        ("cpus_used", "DOUBLE", "CPUs", "CPUs that its process uses"),
        ("baseline", "DOUBLE", "CPUs", "CPUs that a median process of the job uses"),
    ],
    source="beyond the papers",
    params={
        "cost_share": Param("2 %", "of the time that others wait; less is not looked for"),
        "always": Param(1, "late rounds an iteration: late in every one it is slow, not stopped"),
        "repeat": "late_culprits.repeat",
        "not_fed": Param("-1 %", "of its GPU's use against the others': nobody fed it meanwhile"),
        "one_place": Param(
            "80 %",
            "of the late operations begin a step there: batches are waited for where steps begin",
        ),
        "each_step": Param(
            "45 %",
            "of steps at least: a batch is needed in each, garbage is collected now and then",
        ),
        "busier": Param(
            1.2,
            "times the CPUs that other ranks' processes use: the workers of its loader cannot "
            "keep up",
        ),
        "few": Param(2, "ranks of a node: more that pause have a common cause"),
    },
)  # fmt: skip
def pausing_ranks() -> str:
    """Each rank whose process stops now and then, with the pattern of its pauses."""
    return """
        WITH placed AS (SELECT DISTINCT job, rank, node, gpu, nic, pid FROM ranks),
        pauses AS (
            SELECT p.*, l.* EXCLUDE (job, rank, node, gpu)
            FROM late_ranks l JOIN placed p USING (job, rank)
            WHERE l.lost_share >= $cost_share AND l.pauses >= $repeat
                AND coalesce(l.busy, -1) < $not_fed),
        baseline AS (SELECT job, median(cpus_used) AS baseline FROM process_symptoms GROUP BY job),
        measured AS (
            SELECT l.*, s.cpus_used, u.baseline, s.cpus_used > $busier * u.baseline AS busier
            FROM pauses l LEFT JOIN process_symptoms s USING (job, rank)
            LEFT JOIN baseline u USING (job)),
        loading AS (
            SELECT job, rank FROM measured
            WHERE begins >= $one_place AND iterations >= $each_step
                AND coalesce(begins_overall, 0) < $one_place
            QUALIFY count(*) OVER (PARTITION BY job, node) <= $few),
        collecting AS (
            SELECT job, rank FROM measured ANTI JOIN loading USING (job, rank)
            WHERE iterations < $always
            QUALIFY count(*) OVER (PARTITION BY job, node) <= $few)
        SELECT m.*, CASE WHEN (m.job, m.rank) IN (SELECT (job, rank) FROM loading) THEN 'loading'
            WHEN (m.job, m.rank) IN (SELECT (job, rank) FROM collecting) THEN 'collecting' END
            AS habit
        FROM measured m
    """
