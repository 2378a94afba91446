"""Losses that became no number and stayed so: the job goes on, and trains nothing any more."""

from __future__ import annotations

from oncall.evidence import Param, relation


@relation(
    "nan_losses",
    reads=["log_events", "logged_steps"],
    columns=[
        ("job", "VARCHAR", "", "the job's name"),
        ("attempt", "INTEGER", "", "start of the job, 1 first"),
        ("rank", "INTEGER", "", "who logged it, if stated"),
        ("iteration", "BIGINT", "", "the first with such a loss, if numbered"),
        ("last_finite", "BIGINT", "", "the last before it whose loss is a number"),
        ("steps", "BIGINT", "", "step lines with such a loss since"),
        ("place", "VARCHAR", "", "the file and line of the first"),
        ("at_ns", "BIGINT", "ns", "when it was logged"),
        ("text", "VARCHAR", "", "the line"),
    ],
    source="step lines of training frameworks",
    params={
        "several": Param(
            3, "a scaler of mixed precision skips one or two, and the next is a number"
        ),
        "most": Param("90 %", "of the steps since: the loss does not come back"),
    },
)
def nan_losses() -> str:
    """Attempts whose loss is NaN or infinite from some step on."""
    return """
        WITH lost AS (
            SELECT job, attempt, path, line, any_value(text) AS text FROM log_events
            WHERE kind = 'loss' GROUP BY ALL),
        steps AS (
            SELECT s.*, l.line IS NOT NULL AS is_lost, l.text,
                min(s.line) FILTER (l.line IS NOT NULL) OVER (
                    PARTITION BY s.job, s.attempt, s.path) AS since
            FROM logged_steps s LEFT JOIN lost l
                ON l.job = s.job AND l.attempt IS NOT DISTINCT FROM s.attempt
                AND l.path = s.path AND l.line = s.line)
        SELECT DISTINCT ON (job, attempt) * FROM (
            SELECT job, attempt, any_value(rank) AS rank,
                min(iteration) FILTER (is_lost) AS iteration,
                max(iteration) FILTER (line < since) AS last_finite,
                count(*) FILTER (is_lost) AS steps,
                split_part(path, '/', -1) || ':' || min(since) AS place,
                min(at_ns) FILTER (is_lost) AS at_ns,
                arg_min(text, line) FILTER (is_lost) AS text
            FROM steps WHERE since IS NOT NULL GROUP BY job, attempt, path
            HAVING count(*) FILTER (is_lost) >= $several
                AND count(*) FILTER (is_lost) >= $most * count(*) FILTER (line >= since))
        ORDER BY job, attempt, iteration, place"""
