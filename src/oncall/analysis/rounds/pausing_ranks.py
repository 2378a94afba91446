"""Ranks that pause now and then: where in the iteration, and what accompanies the pauses.

If all ranks of a node pause together, they have a common cause, and their pauses show no pattern of
their own.
"""

from __future__ import annotations

from oncall.evidence import Param, relation


@relation(
    "pausing_ranks",
    reads=["ranks", "late_ranks", "process_symptoms"],
    empty_without=["late_ranks"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("rank", "INTEGER", "", "a rank that is late now and then, and is not fed meanwhile"),
        ("node", "VARCHAR", "", "its host"),
        ("gpu", "INTEGER", "", "its GPU"),
        ("nic", "VARCHAR", "", "its NIC"),
        ("pid", "BIGINT", "", "its process id"),
        ("comm", "UBIGINT", "", "the communicator whose members wait for it most often"),
        ("at_ns", "BIGINT", "ns", "first pause"),
        ("excess_ns", "DOUBLE", "ns", "median length of a pause"),
        ("every_ns", "DOUBLE", "ns", "median time between two"),
        ("habit", "VARCHAR", "", "loading: where steps begin, in most of them; collecting: at any "
         "place; NULL: many of its node do alike"),
        ("busier", "BOOLEAN", "", "its process, with its loader's workers, uses far more CPUs"),
        ("cpus_used", "DOUBLE", "CPUs", "CPUs that its process uses"),
        ("baseline", "DOUBLE", "CPUs", "CPUs that a median process of the job uses"),
    ],
    source="beyond the papers",
    params={
        "cost_share": Param("2 %", "of the time that others wait; less is not looked for"),
        "always": Param("60 %", "of its operations: late so often it is slow, not stopped"),
        "repeat": Param(5, "times at least: a late batch or two is ordinary, a habit is not"),
        "not_fed": Param(
            "-1 %", "of its GPU's use against the others': nobody fed it meanwhile"
        ),
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
            WHERE l.lost_share >= $cost_share AND l.late >= $repeat AND l.late < $always * l.rounds
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
            QUALIFY count(*) OVER (PARTITION BY job, node) <= $few)
        SELECT m.*, CASE WHEN (m.job, m.rank) IN (SELECT (job, rank) FROM loading) THEN 'loading'
            WHEN (m.job, m.rank) IN (SELECT (job, rank) FROM collecting) THEN 'collecting' END
            AS habit
        FROM measured m
    """
