"""Had a stage been as expected, how long would the slow iterations have taken? (OSDI '25)"""

from __future__ import annotations

from oncall.evidence import relation


@relation(
    "stage_what_if",
    reads=["stage_costs", "training_iterations"],
    empty_without=["stage_costs"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("replica", "INTEGER", "", "the pipeline"),
        ("stage", "INTEGER", "", "pipeline stage"),
        ("kind", "VARCHAR", "", "computation: its tasks; transfer: what is sent to it"),
        ("iterations", "INTEGER", "", "slow iterations whose time it makes up in part"),
        ("actual_ns", "BIGINT", "ns", "what they took together"),
        ("without_ns", "BIGINT", "ns", "what they would have taken"),
        ("normal_ns", "BIGINT", "ns", "what they would have taken with all as expected"),
        ("explained", "DOUBLE", "ratio", "share of the slow-down that it explains; NULL: none"),
    ],
    source="OSDI '25 what-if analysis",
)
def stage_what_if() -> str:
    """Each stage with what its slowness cost over the recording."""
    return """
        SELECT c.job, c.replica, c.stage, c.kind, count(*) AS iterations,
            sum(i.duration_ns) AS actual_ns,
            sum(i.duration_ns - c.actual_ns + c.without_ns) AS without_ns,
            sum(i.duration_ns - c.actual_ns + c.normal_ns) AS normal_ns,
            sum(c.actual_ns - c.without_ns)
                / nullif(sum(c.actual_ns - c.normal_ns), 0) AS explained
        FROM stage_costs c JOIN training_iterations i USING (job, iteration)
        GROUP BY c.job, c.replica, c.stage, c.kind
    """
