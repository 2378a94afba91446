"""Which tasks made an iteration slow (VenusTrace Algorithm 2).

A task counts if it is on the critical path of one of the slowest pipelines, took longer than
expected, and its stage explains a good part of the lost time. Where calls alone are recorded, a
task's duration is inferred from when its rank made its next call. Then an iteration that was no
longer than the baseline has lost nothing to a stage that is compared with its own past. It may have
lost time to a stage that is slower than in other pipelines, or to a link that is slow throughout.
"""

from __future__ import annotations

from oncall.analysis.pipeline.stage_expectation import PEERS
from oncall.analysis.pipeline.stage_vertices import VERTEX, VERTEX_COLUMNS
from oncall.evidence import Param, relation

SLOW_TASK_COLUMNS = [
    *VERTEX_COLUMNS,
    ("kind", "VARCHAR", "", "computation, or transfer: of what it works on"),
    ("started_ns", "BIGINT", "ns", "when it could begin, common time"),
    ("duration_ns", "BIGINT", "ns", "what it took, or its transfer"),
    ("expected_ns", "DOUBLE", "ns", "what that should take"),
    ("excess_ns", "DOUBLE", "ns", "beyond"),
    ("slack_ns", "BIGINT", "ns", "how much later it could have begun"),
    ("decided", "VARCHAR", "", "paper (beyond 50 %), spread, or both"),
    ("basis", "VARCHAR", "", "what it is compared with"),
    ("explained", "DOUBLE", "ratio", "share of the iteration's lost time, by its stage"),
    ("saved_ns", "BIGINT", "ns", "share of the iteration saved, had the stage been as expected"),
    ("clock_error_ns", "BIGINT", "ns", "the error of the clocks"),
]


@relation(
    "slow_tasks",
    reads=["stage_graph", "stage_paths", "stage_costs", "training_iterations"],
    optional=["knowledge"],
    empty_without=["stage_costs"],
    columns=SLOW_TASK_COLUMNS,
    source="VenusTrace 3.3, Algorithm 2 (lines 23-25)",
    params={
        "others_below": "stage_paths.others_below",
        "beta": Param("50 %", "beyond the expectation by this share: anomalous (VenusTrace 3.3)"),
        "spreads": Param(6, "or by this many times the scatter of such tasks"),
        "share": Param("5 %", "and this share of their duration"),
        "explains": Param("20 %", "of an iteration's lost time: below, a stage is one of many"),
        "least_saved": Param("1 %", "of the iteration: less lost time is not worth reporting"),
        "on_path": Param(
            "10 %", "of its excess: with less slack nearly all of it lengthens the iteration"
        ),
    },
)
def slow_tasks() -> str:
    """Critical tasks beyond expectation, of stages that explain why their iteration was slow."""
    columns = ", ".join(f"g.{name}" for name in VERTEX)
    return f"""
        WITH cost AS (
            SELECT c.*, greatest(i.excess_ns, 0) AS longer_ns
            FROM stage_costs c JOIN training_iterations i USING (job, iteration)
            WHERE explained >= $explains AND actual_ns - without_ns > greatest(
                $least_saved * i.duration_ns, CASE WHEN slow THEN $explains * excess_ns END)),
        calls_alone AS (
            SELECT i.job, i.iteration FROM training_iterations i JOIN knowledge k USING (job)
            WHERE NOT k.durations AND NOT i.slow),
        -- A slow transfer also holds up what its sender does next.
        held AS (
            SELECT p.vertex, min(h.slack_ns) AS slack_ns
            FROM stage_paths p JOIN stage_paths h ON h.previous = p.source
            WHERE h.hold_ns > 0 GROUP BY p.vertex),
        placed AS (
            SELECT *, lead(started_ns) OVER (PARTITION BY job, iteration, replica, stage
                ORDER BY started_ns) IS NULL AS closes,
                -- A link that was slow from the beginning is so for most of what it carries.
                $others_below * median(latency_ns) OVER (
                    PARTITION BY job, iteration, replica, stage, chunk, task) > baseline_latency_ns
                    AS mostly_late
            FROM stage_graph),
        judged AS (
            SELECT {columns}, c.kind, g.closes, g.started_ns, g.basis, g.clock_error_ns,
                CASE c.kind WHEN 'computation' THEN g.basis = '{PEERS}'
                    ELSE coalesce(g.mostly_late, false) END AS from_the_beginning,
                CASE c.kind WHEN 'computation' THEN g.slack_ns
                    ELSE least(g.slack_ns, h.slack_ns) END::BIGINT AS slack_ns,
                g.spread_ns, c.explained,
                -- What began later costs no more than the iteration is longer than others.
                least(c.actual_ns - c.without_ns, CASE WHEN NOT from_the_beginning
                    THEN c.longer_ns END)::BIGINT AS saved_ns,
                CASE c.kind WHEN 'computation' THEN g.duration_ns ELSE g.latency_ns END AS took_ns,
                CASE c.kind WHEN 'computation' THEN g.expected_ns
                    ELSE g.baseline_latency_ns END AS should_ns,
                CASE c.kind WHEN 'computation' THEN g.work * g.paper_ns END AS paper_should_ns
            FROM placed g JOIN cost c USING (job, iteration, replica, stage)
            LEFT JOIN held h ON h.vertex = g.vertex),
        beyond AS (
            SELECT *, took_ns - should_ns AS excess_ns,
                took_ns > (1 + $beta) * paper_should_ns AS by_paper,
                took_ns - should_ns > greatest($spreads * spread_ns, $share * should_ns)
                    -- A transfer is judged across clocks: within their error nothing is concluded.
                    AND (kind = 'computation' OR took_ns - should_ns
                        > greatest(spread_ns, coalesce(clock_error_ns, 0))) AS by_spread
            FROM judged)
        SELECT *, took_ns AS duration_ns, should_ns AS expected_ns,
            CASE WHEN by_paper AND by_spread THEN 'both' WHEN by_paper THEN 'paper'
                ELSE 'spread' END AS decided
        FROM beyond
        WHERE excess_ns > 0 AND (by_paper OR by_spread) AND slack_ns < $on_path * excess_ns
            AND (from_the_beginning
                OR (job, iteration) NOT IN (SELECT (job, iteration) FROM calls_alone))
        -- After their last task pipelines wait for one another: that is the late one's doing.
        QUALIFY coalesce(bool_or(NOT closes) OVER (PARTITION BY job, iteration, replica)
            OR NOT bool_or(NOT closes) OVER (PARTITION BY job, iteration), true)
    """
