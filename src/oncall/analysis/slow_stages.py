"""Which tasks made an iteration slow, and which rank of their group (VenusTrace Algorithm 2).

Only tasks on the critical path of the slowest pipelines count, only beyond what is expected of
them, and only of stages that explain a good part of the lost time. Within the tensor-parallel group
it is the member with more time of its own than the others, else the one that enters last.
"""

from __future__ import annotations

from oncall.analysis.stage_vertices import VERTEX, VERTEX_COLUMNS
from oncall.evidence import relation

BETA = 0.5  # beyond the expectation by this part: anomalous (VenusTrace 3.3)
SPREADS = 6  # ... or by this many times what such tasks scatter, ...
SHARE = 0.05  # ... and this part of what they take
EXPLAINS = 0.2  # of an iteration's lost time: below, a stage is one of many
LEAST_SAVED = 0.01  # of the iteration: a stage that costs less is not worth naming
OWN_PART = 0.5  # of the excess: more time of its own than the others' makes a rank the cause
LAST_PART = 0.3  # how much more often than its turn the last member enters last


@relation(
    "slow_tasks",
    reads=["stage_graph", "stage_costs", "training_iterations"],
    empty_without=["stage_costs"],
    columns=[
        *VERTEX_COLUMNS,
        ("kind", "VARCHAR", "", "computation, or transfer: of what it works on"),
        ("started_ns", "BIGINT", "ns", "when it could begin, common time"),
        ("duration_ns", "BIGINT", "ns", "what it took, or its transfer"),
        ("expected_ns", "DOUBLE", "ns", "what that should take"),
        ("excess_ns", "DOUBLE", "ns", "beyond"),
        ("slack_ns", "BIGINT", "ns", "how much later it could have begun"),
        ("decided", "VARCHAR", "", "paper (beyond 50 %), spread, or both"),
        ("basis", "VARCHAR", "", "what it is compared with"),
        ("explained", "DOUBLE", "ratio", "of the iteration's lost time, by its stage"),
        ("saved_ns", "BIGINT", "ns", "of the iteration, had the stage been as expected"),
        ("clock_error_ns", "BIGINT", "ns", "by how much clocks may be off"),
    ],
    source="VenusTrace 3.3, Algorithm 2 (lines 23-25)",
)
def slow_tasks() -> str:
    """Critical tasks beyond expectation, of stages that explain why their iteration was slow."""
    columns = ", ".join(f"g.{name}" for name in VERTEX)
    return f"""
        WITH cost AS (
            SELECT c.* FROM stage_costs c JOIN training_iterations i USING (job, iteration)
            WHERE explained >= {EXPLAINS} AND actual_ns - without_ns > greatest(
                {LEAST_SAVED} * i.duration_ns, CASE WHEN slow THEN {EXPLAINS} * excess_ns END)),
        judged AS (
            SELECT {columns}, c.kind, g.started_ns, g.slack_ns, g.basis, g.clock_error_ns,
                g.spread_ns, c.explained, c.actual_ns - c.without_ns AS saved_ns,
                CASE c.kind WHEN 'computation' THEN g.duration_ns ELSE g.latency_ns END AS took_ns,
                CASE c.kind WHEN 'computation' THEN g.expected_ns
                    ELSE g.usual_latency_ns END AS should_ns,
                CASE c.kind WHEN 'computation' THEN g.work * g.paper_ns END AS paper_should_ns
            FROM stage_graph g JOIN cost c USING (job, iteration, replica, stage)
            WHERE g.critical),
        beyond AS (
            SELECT *, took_ns - should_ns AS excess_ns,
                took_ns > {1 + BETA} * paper_should_ns AS by_paper,
                took_ns - should_ns > greatest({SPREADS} * spread_ns, {SHARE} * should_ns)
                    -- A transfer is judged across clocks: within their error nothing is concluded.
                    AND (kind = 'computation' OR took_ns - should_ns
                        > greatest(spread_ns, coalesce(clock_error_ns, 0))) AS by_spread
            FROM judged)
        SELECT *, took_ns AS duration_ns, should_ns AS expected_ns,
            CASE WHEN by_paper AND by_spread THEN 'both' WHEN by_paper THEN 'paper'
                ELSE 'spread' END AS decided
        FROM beyond WHERE excess_ns > 0 AND (by_paper OR by_spread)
    """


@relation(
    "slow_members",
    reads=["slow_tasks", "stage_work"],
    empty_without=["slow_tasks"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("replica", "INTEGER", "", "the pipeline"),
        ("stage", "INTEGER", "", "pipeline stage"),
        ("rank", "INTEGER", "", "a member of its tensor-parallel group"),
        ("node", "VARCHAR", "", "its host"),
        ("members", "INTEGER", "ranks", "size of the group"),
        ("own_lead_ns", "DOUBLE", "ns", "its own time beyond the other members', slow tasks only"),
        ("late_ns", "BIGINT", "ns", "by how much it entered later than the median member"),
        ("last_calls", "BIGINT", "calls", "calls that it entered last"),
        ("calls", "BIGINT", "calls", "calls of the group"),
        ("last_share", "DOUBLE", "ratio", "share of the calls that it entered last"),
        ("because", "VARCHAR", "", "own time, entered last, or alone; NULL: it is not this one"),
    ],
    source="VenusTrace Fig. 6, Algorithm 2 (line 26)",
)
def slow_members() -> str:
    """The members of groups whose computation was slow, and which of them the others waited for."""
    return f"""
        WITH excess AS (
            SELECT job, replica, stage, sum(excess_ns) AS excess_ns FROM slow_tasks
            WHERE kind = 'computation' GROUP BY ALL),
        each AS (
            SELECT w.job, t.replica, w.stage, w.rank, any_value(w.node) AS node,
                sum(w.own_ns) AS own_ns, sum(w.late_ns) AS late_ns,
                sum(w.last_calls) AS last_calls, sum(w.calls) AS calls
            FROM stage_work w JOIN slow_tasks t ON w.job = t.job AND w.iteration = t.iteration
                AND coalesce(w.replica, 0) = t.replica AND w.stage = t.stage
                AND coalesce(w.chunk, 0) = t.chunk AND w.micro_batch = t.micro_batch
                AND w.task = t.task
            WHERE t.kind = 'computation' GROUP BY ALL),
        beside AS (
            SELECT *, count(*) OVER g AS members,
                own_ns - (sum(own_ns) OVER g - own_ns) / nullif(count(own_ns) OVER g - 1, 0)
                    AS own_lead_ns,
                last_calls / nullif(sum(last_calls) OVER g, 0) AS last_share
            FROM each WINDOW g AS (PARTITION BY job, replica, stage)),
        weighed AS (
            SELECT *, coalesce(last_share - 1 / members, 0) AS beyond_turn
            FROM beside JOIN excess USING (job, replica, stage))
        SELECT *, CASE WHEN members = 1 THEN 'alone'
            WHEN own_lead_ns >= {OWN_PART} * excess_ns
                AND own_lead_ns = max(own_lead_ns) OVER g THEN 'own time'
            WHEN coalesce(max(own_lead_ns) OVER g < {OWN_PART} * excess_ns, true)
                AND (late_ns >= {OWN_PART} * excess_ns OR beyond_turn >= {LAST_PART})
                AND row_number() OVER (g ORDER BY late_ns DESC NULLS LAST, beyond_turn DESC) = 1
                THEN 'entered last' END AS because
        FROM weighed WINDOW g AS (PARTITION BY job, replica, stage)
    """


@relation(
    "slow_stages",
    reads=["slow_tasks", "training_iterations"],
    optional=["slow_members", "stage_vertices"],
    empty_without=["slow_tasks"],
    columns=[
        *VERTEX_COLUMNS,
        ("rank", "INTEGER", "", "whom its group waited for; NULL: no member stands out"),
        ("node", "VARCHAR", "", "its host, or that of the whole group"),
        ("started_ns", "BIGINT", "ns", "when it could begin, common time"),
        ("duration_ns", "BIGINT", "ns", "what it took; of the network: the transfer to it"),
        ("expected_ns", "DOUBLE", "ns", "what that should take"),
        ("excess_ns", "DOUBLE", "ns", "beyond"),
        ("slack_ns", "BIGINT", "ns", "how much later it could have begun"),
        ("decided", "VARCHAR", "", "paper (beyond 50 %), spread, or both"),
        ("basis", "VARCHAR", "", "what it is compared with"),
        ("last_share", "DOUBLE", "ratio", "of its group's calls, those that the rank entered last"),
        ("last_calls", "BIGINT", "calls", "calls that the rank entered last"),
        ("calls", "BIGINT", "calls", "calls of its group in slow tasks"),
        ("members", "INTEGER", "ranks", "size of its group"),
        ("because", "VARCHAR", "", "own time, entered last, or alone"),
        ("network", "BOOLEAN", "", "the transfer was slow, not the computation"),
        ("from_stage", "INTEGER", "", "of a slow transfer, the stage that sends"),
        ("explained", "DOUBLE", "ratio", "of the iteration's lost time, by its stage"),
        ("saved_ns", "BIGINT", "ns", "of the iteration, had the stage been as expected"),
        ("iteration_ns", "BIGINT", "ns", "what the iteration took"),
        ("usual_iteration_ns", "DOUBLE", "ns", "what iterations take"),
        ("iterations_slow", "INTEGER", "", "iterations in which the stage is to blame"),
    ],
    source="VenusTrace 3.3, Algorithm 2",
)
def slow_stages() -> str:
    """Tasks that made an iteration slow, each with its culprit."""
    return """
        WITH placed AS (
            SELECT job, replica, stage, CASE WHEN count(DISTINCT node) = 1 THEN min(node) END
                AS node, CASE WHEN max(ranks) = 1 THEN min(rank) END AS rank
            FROM stage_vertices GROUP BY ALL)
        SELECT t.*, coalesce(m.rank, p.rank) AS rank, coalesce(m.node, p.node) AS node,
            m.last_share, m.last_calls, m.calls, m.members, m.because,
            t.kind = 'transfer' AS network,
            CASE WHEN t.kind = 'transfer' THEN t.stage + CASE t.task WHEN 'forward' THEN -1
                ELSE 1 END END AS from_stage,
            i.duration_ns AS iteration_ns, i.usual_ns AS usual_iteration_ns,
            count(DISTINCT t.iteration) OVER (
                PARTITION BY t.job, t.replica, t.stage, t.kind) AS iterations_slow
        FROM slow_tasks t JOIN training_iterations i USING (job, iteration)
        LEFT JOIN (FROM slow_members WHERE because IS NOT NULL) m
            ON m.job = t.job AND m.replica = t.replica AND m.stage = t.stage
            AND t.kind = 'computation'
        LEFT JOIN placed p ON p.job = t.job AND p.replica = t.replica AND p.stage = t.stage
    """
