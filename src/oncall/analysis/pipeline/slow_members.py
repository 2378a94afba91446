"""Which ranks of a stage are slow.

For a slow task, it is the member of its tensor-parallel group that the others wait for; for a slow
transfer, the pair of ranks that took longest. A member that computes slowly has more time of its
own than the others, if that is recorded; if not, it enters the calls of the group last, again and
again (VenusTrace Fig. 6).
"""

from __future__ import annotations

from oncall.analysis.pipeline.stage_transfers import PAIR_COLUMNS
from oncall.analysis.pipeline.stage_vertices import VERTEX, VERTEX_COLUMNS
from oncall.evidence import Param, relation


def _ends() -> str:
    """How much later than its group each rank ended tasks, and its baseline."""
    return """
        excess AS (
            SELECT job, replica, stage, sum(excess_ns) AS excess_ns, avg(excess_ns) AS each_ns,
                -- There a host that runs ahead shows nothing of its device.
                CASE WHEN job IN (SELECT job FROM knowledge WHERE NOT durations)
                    THEN $late_part ELSE 0 END AS least_part
            FROM caused_tasks WHERE kind = 'computation' GROUP BY ALL),
        -- A host that runs ahead of its device calls on time; it waits for it at the end of a task.
        ended AS (
            SELECT w.*, greatest(ended_ns - median(ended_ns) OVER task, 0) AS ended_late_ns
            FROM stage_work w SEMI JOIN excess e ON e.job = w.job AND e.stage = w.stage
                AND e.replica = coalesce(w.replica, 0)
            WHERE w.task IN ('forward', 'backward')
            WINDOW task AS (PARTITION BY w.job, w.iteration, coalesce(w.replica, 0), w.stage,
                coalesce(w.chunk, 0), w.micro_batch, w.task)),
        baselines AS (
            SELECT job, coalesce(replica, 0) AS replica, stage,
                quantile_cont(ended_late_ns, 0.9) AS baseline_late_ns
            FROM ended e WHERE NOT EXISTS (
                FROM caused_tasks t WHERE t.job = e.job AND t.iteration = e.iteration)
            GROUP BY ALL)
    """


def _compared() -> str:
    """Each member of a slow group against the others: own time, lateness, last calls."""
    return """
        -- Only tasks that every member tells: what one has lost is no time of the others.
        seen AS (
            SELECT w.job, t.replica, w.stage, w.rank, w.node, w.own_ns, w.late_ns, w.last_calls,
                w.calls, w.ended_late_ns, count(*) OVER (PARTITION BY w.job, t.replica, w.stage,
                    w.iteration, t.chunk, w.micro_batch, w.task) AS members
            FROM ended w JOIN caused_tasks t ON w.job = t.job AND w.iteration = t.iteration
                AND coalesce(w.replica, 0) = t.replica AND w.stage = t.stage
                AND coalesce(w.chunk, 0) = t.chunk AND w.micro_batch = t.micro_batch
                AND w.task = t.task
            WHERE t.kind = 'computation'),
        each AS (
            SELECT job, replica, stage, rank, any_value(node) AS node,
                sum(own_ns) AS own_ns, sum(late_ns) AS late_ns,
                sum(last_calls) AS last_calls, sum(calls) AS calls,
                avg(ended_late_ns) AS ended_late_ns
            FROM (FROM seen QUALIFY members = max(members) OVER (PARTITION BY job, replica, stage))
            GROUP BY ALL),
        beside AS (
            SELECT *, count(*) OVER g AS members,
                own_ns - (sum(own_ns) OVER g - own_ns) / nullif(count(own_ns) OVER g - 1, 0)
                    AS own_lead_ns,
                last_calls / nullif(sum(last_calls) OVER g, 0) AS last_share
            FROM each WINDOW g AS (PARTITION BY job, replica, stage)),
        weighed AS (
            SELECT *, coalesce(last_share - 1 / members, 0) AS beyond_turn,
                -- Later than its group's other members: all of them may have waited elsewhere.
                late_ns - (sum(late_ns) OVER g - late_ns) / nullif(count(late_ns) OVER g - 1, 0)
                    AS late_lead_ns
            FROM beside JOIN excess USING (job, replica, stage)
            WINDOW g AS (PARTITION BY job, replica, stage))
    """


@relation(
    "slow_members",
    reads=["caused_tasks", "stage_work"],
    optional=["knowledge"],
    empty_without=["caused_tasks"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("replica", "INTEGER", "", "the pipeline"),
        ("stage", "INTEGER", "", "pipeline stage"),
        ("rank", "INTEGER", "", "a member of its tensor-parallel group"),
        ("node", "VARCHAR", "", "its host"),
        ("members", "INTEGER", "ranks", "size of the group"),
        ("own_lead_ns", "DOUBLE", "ns", "its own time beyond the other members', slow tasks only"),
        ("late_ns", "BIGINT", "ns", "by how much it entered later than the median member"),
        (
            "ended_late_ns",
            "DOUBLE",
            "ns",
            "the same of the ends of tasks, beyond the baseline, for each",
        ),
        ("last_calls", "BIGINT", "calls", "calls that it entered last"),
        ("calls", "BIGINT", "calls", "calls of the group"),
        ("last_share", "DOUBLE", "ratio", "share of the calls that it entered last"),
        ("because", "VARCHAR", "", "own time, entered last, or alone; NULL: not this one"),
    ],
    source="VenusTrace Fig. 6, Algorithm 2 (line 26)",
    params={
        "own_part": Param(
            "50 %", "of the excess: this much more own time than the others' makes a rank the cause"
        ),
        "last_part": Param(
            "30 %", "how much more often than by chance the last member enters last"
        ),
        "late_part": Param(
            "20 %", "of the excess, where only calls are recorded: less late, it delayed no other"
        ),
        "late_times": Param(
            4, "times the baseline lateness of the group's members in ending what they end together"
        ),
    },
)
def slow_members() -> str:
    """The members of groups whose computation was slow, and which of them the others waited for."""
    stages = (_ends(), _compared())
    return f"""
        WITH {",".join(stages)}
        SELECT * REPLACE (ended_late_ns - baseline_late_ns AS ended_late_ns),
            CASE WHEN members = 1 THEN 'alone'
            WHEN own_lead_ns >= $own_part * excess_ns
                AND own_lead_ns = max(own_lead_ns) OVER g THEN 'own time'
            WHEN coalesce(max(own_lead_ns) OVER g < $own_part * excess_ns, true)
                AND (late_lead_ns >= $own_part * excess_ns OR beyond_turn >= $last_part
                    AND (least_part = 0 OR late_lead_ns >= least_part * excess_ns))
                AND row_number() OVER (
                    g ORDER BY late_ns DESC NULLS LAST, beyond_turn DESC, rank) = 1
                THEN 'entered last'
            WHEN coalesce(max(own_lead_ns) OVER g < $own_part * excess_ns, true)
                AND ended_late_ns > greatest($late_times * baseline_late_ns, least_part * each_ns)
                AND ended_late_ns = max(ended_late_ns) OVER g THEN 'entered last' END AS because
        FROM weighed LEFT JOIN baselines USING (job, replica, stage)
        WINDOW g AS (PARTITION BY job, replica, stage)
    """


@relation(
    "slow_transfers",
    reads=["caused_tasks", "stage_transfers"],
    empty_without=["caused_tasks"],
    columns=[*VERTEX_COLUMNS, *PAIR_COLUMNS],
    source="VenusTrace Fig. 7, Algorithm 2 (lines 13-15)",
)
def slow_transfers() -> str:
    """The slowest pair of ranks of each slow transfer between stages."""
    place = ", ".join(VERTEX)
    return f"""
        SELECT p.* FROM stage_transfers p
        SEMI JOIN (FROM caused_tasks WHERE kind = 'transfer') t USING ({place})
        QUALIFY row_number() OVER (
            PARTITION BY {place} ORDER BY took_ns DESC NULLS LAST, receiver) = 1
    """
