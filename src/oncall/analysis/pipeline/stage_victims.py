"""Ranks that were late only because they waited for a slow task of another rank.

Experts and contexts are exchanged inside a task, so ranks of other pipelines also enter their next
call late. Such a rank spends no more time of its own than its baseline.
"""

from __future__ import annotations

from oncall.evidence import Param, relation


@relation(
    "stage_victims",
    reads=["slow_stages", "stage_work", "training_iterations"],
    empty_without=["slow_stages"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("rank", "INTEGER", "", "the rank whose task or send was slow"),
        ("victim", "INTEGER", "", "a rank that waited for it"),
        ("iterations", "INTEGER", "", "slow iterations in which it did"),
        (
            "own_more_ns",
            "DOUBLE",
            "ns",
            "the most that its own time exceeded its median in an iteration",
        ),
    ],
    source="VenusTrace 3.3 (dependencies within parallel groups)",
    params={
        "own_part": Param(
            "20 %", "of the culprit's excess: a rank whose own time grew by as much is no victim"
        ),
    },
)
def stage_victims() -> str:
    """Each slow rank with its victims: ranks whose own time was never far beyond the baseline."""
    return """
        WITH culprits AS (
            SELECT job, rank, iteration, sum(excess_ns) AS excess_ns FROM slow_stages
            WHERE rank IS NOT NULL GROUP BY ALL),
        own AS (
            SELECT job, rank, iteration, sum(own_ns) AS own_ns FROM stage_work
            ANTI JOIN (FROM training_iterations WHERE warm_up) USING (job, iteration)
            WHERE task IN ('forward', 'backward') AND whole AND own_ns IS NOT NULL
            GROUP BY ALL),
        beyond AS (
            SELECT *, own_ns - median(own_ns) OVER (PARTITION BY job, rank) AS more_ns FROM own),
        most AS (
            SELECT job, rank, max(more_ns) AS most_ns FROM beyond GROUP BY job, rank)
        SELECT c.job, c.rank, b.rank AS victim, count(*) AS iterations,
            any_value(m.most_ns) AS own_more_ns
        FROM culprits c JOIN beyond b ON b.job = c.job AND b.iteration = c.iteration
            AND b.rank <> c.rank
        JOIN most m ON m.job = b.job AND m.rank = b.rank
        ANTI JOIN culprits o ON o.job = b.job AND o.rank = b.rank
        GROUP BY c.job, c.rank, b.rank
        HAVING own_more_ns < $own_part * max(c.excess_ns)
    """
