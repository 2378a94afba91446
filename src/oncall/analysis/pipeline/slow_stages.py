"""What made iterations slow: the tasks, each with the rank or the transfer to blame."""

from __future__ import annotations

from oncall.analysis.pipeline.stage_vertices import VERTEX_COLUMNS
from oncall.evidence import relation


@relation(
    "slow_stages",
    reads=["caused_tasks", "training_iterations"],
    optional=["slow_members", "slow_transfers", "stage_vertices"],
    empty_without=["caused_tasks"],
    columns=[
        *VERTEX_COLUMNS,
        ("rank", "INTEGER", "", "the rank that its group waited for; NULL: no member stands out"),
        ("node", "VARCHAR", "", "its host, or that of the whole group"),
        ("started_ns", "BIGINT", "ns", "when it could begin, common time"),
        ("duration_ns", "BIGINT", "ns", "what it took; of the network: the transfer to it"),
        ("expected_ns", "DOUBLE", "ns", "what that should take"),
        ("excess_ns", "DOUBLE", "ns", "beyond"),
        (
            "own_excess_ns",
            "DOUBLE",
            "ns",
            "own time beyond the baseline, of its rank with the most of it",
        ),
        ("slack_ns", "BIGINT", "ns", "how much later it could have begun"),
        ("decided", "VARCHAR", "", "paper (beyond 50 %), spread, or both"),
        ("basis", "VARCHAR", "", "what it is compared with"),
        ("last_share", "DOUBLE", "ratio", "share of its group's calls that the rank entered last"),
        ("last_calls", "BIGINT", "calls", "calls that the rank entered last"),
        ("calls", "BIGINT", "calls", "calls of its group in slow tasks"),
        ("members", "INTEGER", "ranks", "size of its group"),
        ("because", "VARCHAR", "", "own time, entered last, or alone"),
        ("network", "BOOLEAN", "", "the transfer was slow, not the computation"),
        ("from_stage", "INTEGER", "", "of a slow transfer, the stage that sends"),
        ("peer", "INTEGER", "", "of a slow transfer, the rank that receives; `rank` sends"),
        ("peer_node", "VARCHAR", "", "its host"),
        ("explained", "DOUBLE", "ratio", "share of the iteration's lost time, by its stage"),
        (
            "saved_ns",
            "BIGINT",
            "ns",
            "share of the iteration saved, had the stage been as expected",
        ),
        ("iteration_ns", "BIGINT", "ns", "what the iteration took"),
        ("baseline_iteration_ns", "DOUBLE", "ns", "the baseline of iterations"),
        ("iterations_slow", "INTEGER", "", "iterations in which the stage is to blame"),
    ],
    source="VenusTrace 3.3, Algorithm 2",
)
def slow_stages() -> str:
    """Tasks that made an iteration slow, each with its culprit."""
    return """
        WITH placed AS (
            SELECT job, replica, stage, any_value(pp) AS pp,
                CASE WHEN count(DISTINCT node) = 1 THEN min(node) END AS node
            FROM stage_vertices
            JOIN (SELECT job, max(stage) + 1 AS pp FROM stage_vertices GROUP BY job) USING (job)
            GROUP BY job, replica, stage)
        SELECT t.*, coalesce(m.rank, x.sender) AS rank,
            CASE WHEN t.kind = 'transfer' THEN x.sender_node ELSE coalesce(m.node, p.node) END
                AS node,
            CASE WHEN t.kind = 'transfer' THEN
                (t.stage + CASE t.task WHEN 'forward' THEN -1 ELSE 1 END + pp) % pp END
                AS from_stage, x.receiver AS peer, x.receiver_node AS peer_node,
            m.last_share, m.last_calls, m.calls, m.members, m.because,
            t.kind = 'transfer' AS network,
            i.duration_ns AS iteration_ns, i.baseline_ns AS baseline_iteration_ns,
            count(DISTINCT t.iteration) OVER (
                PARTITION BY t.job, t.replica, t.stage, t.kind) AS iterations_slow
        FROM caused_tasks t JOIN training_iterations i USING (job, iteration)
        LEFT JOIN (FROM slow_members WHERE because IS NOT NULL) m
            ON m.job = t.job AND m.replica = t.replica AND m.stage = t.stage
            AND t.kind = 'computation'
        LEFT JOIN slow_transfers x
            ON x.job = t.job AND x.iteration = t.iteration AND x.replica = t.replica
            AND x.stage = t.stage AND x.chunk = t.chunk AND x.micro_batch = t.micro_batch
            AND x.task = t.task AND t.kind = 'transfer'
        LEFT JOIN placed p ON p.job = t.job AND p.replica = t.replica AND p.stage = t.stage
    """
