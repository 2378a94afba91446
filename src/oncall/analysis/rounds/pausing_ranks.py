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
                CASE WHEN members > $peers THEN median_ns ELSE mean_ns END AS peers_ns,
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
            WHERE rounds >= $repeat AND last_ns - first_ns > span_ns / 2
            QUALIFY row_number() OVER (PARTITION BY job ORDER BY rounds, comm, rank, op, bytes) = 1)
    """


def _late_ranks() -> str:
    """Each rank that came late of its own making twice or more, in the communicator that tells the
    rhythm, with where in the iteration, how often, and what its GPU did meanwhile."""
    return """
        ordered AS (
            SELECT *, lag(comm) OVER w IS DISTINCT FROM comm AS begins,
                at_ns - lag(CASE WHEN late THEN at_ns END IGNORE NULLS) OVER c AS since_ns
            FROM late_rounds
            WINDOW w AS (PARTITION BY job, rank ORDER BY at_ns, comm),
                c AS (PARTITION BY job, rank, comm ORDER BY at_ns)),
        first AS (
            SELECT job, rank, comm, min(at_ns) FILTER (late) AS first_ns, max(at_ns) AS last_ns
            FROM ordered GROUP BY ALL HAVING count(*) FILTER (late) > 1),
        summed AS (
            -- How many pauses of equal length would cost as much: short ones hardly count.
            SELECT p.job, p.rank, p.comm, any_value(first_ns) AS at_ns,
                count(*) FILTER (p.late) AS late, count(*) AS rounds,
                sum(lost_ns) AS lost_ns, pow(sum(lost_ns), 2) / sum(pow(lost_ns, 2)) AS pauses,
                nullif(any_value(last_ns) - any_value(first_ns), 0) AS span_ns,
                median(own_ns - peers_ns) FILTER (p.late) AS excess_ns,
                avg(begins::INTEGER) FILTER (p.late) AS begins,
                coalesce(avg(begins::INTEGER), 0) AS begins_overall,
                median(since_ns) FILTER (p.late) AS every_ns
            FROM ordered p JOIN first f USING (job, rank, comm) WHERE p.at_ns >= first_ns
            GROUP BY ALL),
        -- A delay passes on to other communicators: the one with most rounds tells the rhythm.
        chosen AS (
            SELECT * FROM (
                SELECT *, max(lost_ns) OVER (PARTITION BY job, rank) AS most_ns FROM summed)
            WHERE lost_ns >= most_ns / 2 AND lost_ns >= $cost_share * span_ns AND pauses >= $repeat
            QUALIFY row_number() OVER (PARTITION BY job, rank ORDER BY rounds DESC, comm) = 1),
        used AS (
            SELECT c.job, c.rank,
                avg(g.utilisation) FILTER (g.node = p.node AND g.gpu = p.gpu)
                    - avg(g.utilisation) FILTER (g.node <> p.node OR g.gpu <> p.gpu) AS busy
            FROM chosen c JOIN processes p USING (job, rank)
            JOIN gpu_states g ON g.at_ns >= c.at_ns GROUP BY ALL)
    """


@relation(
    "pausing_ranks",
    reads=["ranks"],
    columns=[
        "job",
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
    source="beyond the papers; CCL-D 4.2.1 for who waits",
    params={
        "peers": "lost_time.few",
        "late": Param(1.15, "times as long as peers, or as before: beyond ordinary jitter"),
        "least": Param("2 ms", "beyond its peers' own time: hosts scatter by less between calls"),
        "explains": "lost_time.mostly",
        "cost_share": Param("2 %", "of the time that others wait; less is not looked for"),
        "always": Param(1, "late rounds an iteration: late in every one it is slow, not stopped"),
        "repeat": "late_culprits.repeat",
        "not_fed": Param("-1 %", "of its GPU's use against the others': nobody fed it meanwhile"),
        "one_place": Param("80 %", "of the late operations begin a step there: batches are waited "
                           "for where steps begin"),
        "each_step": Param("45 %", "of steps at least: a batch is needed in each, garbage is "
                           "collected now and then"),
        "busier": Param(1.2, "times the CPUs that other ranks' processes use: the workers of its "
                        "loader cannot keep up"),
        "few": Param(2, "ranks of a node: more that pause have a common cause"),
    },
)  # fmt: skip
def pausing_ranks() -> str:
    """Each rank whose process stops now and then, with the pattern of its pauses."""
    return f"""
        WITH {_late_rounds()}, {_iterations()}, {_late_ranks()},
        baseline AS (SELECT job, median(cpus_used) AS baseline FROM process_symptoms GROUP BY job),
        measured AS (
            SELECT c.*, p.node, p.gpu, p.nic, p.pid, s.cpus_used, baseline,
                s.cpus_used > $busier * baseline AS busier,
                c.late * iteration_ns / span_ns AS of_iterations,
                coalesce(begins >= $one_place AND begins_overall < $one_place
                    AND of_iterations >= $each_step, false) AS loads
            FROM chosen c JOIN processes p USING (job, rank) LEFT JOIN iterations USING (job)
            LEFT JOIN used u USING (job, rank) LEFT JOIN process_symptoms s USING (job, rank)
            LEFT JOIN baseline USING (job)
            WHERE coalesce(u.busy, -1) < $not_fed),
        habits AS (
            SELECT *, loads AND count(*) FILTER (loads) OVER host <= $few AS loading,
                NOT loading AND of_iterations < $always AS collects
            FROM measured WINDOW host AS (PARTITION BY job, node))
        SELECT *, CASE WHEN loading THEN 'loading'
            WHEN collects AND count(*) FILTER (collects) OVER (PARTITION BY job, node) <= $few
                THEN 'collecting' END AS habit
        FROM habits
    """
