"""Whether a job with waiting ranks is stopped: the symptoms of progress, summed up.

Symptoms are log odds and taken as independent, so their sum gives a probability.
"""

from __future__ import annotations

from oncall.evidence import Param, relation


@relation(
    "job_progress",
    reads=["hang_roots"],
    optional=["progress_symptoms"],
    empty_without=["hang_roots"],
    columns=[
        ("job", "VARCHAR", "", "a job with waiting ranks"),
        ("stopped", "DOUBLE", "0..1", "the probability that it is stopped"),
        ("state", "VARCHAR", "", "stopped, unclear or moving"),
        ("moved", "BOOLEAN", "", "whether it was recorded that the job went on"),
        ("undated", "BOOLEAN", "", "nothing shows when its dumps were made"),
        ("why", "VARCHAR", "", "the reasons, the weightiest first"),
    ],
    source="beyond CCL-D",
    params={
        "stopped_above": Param(0.9, "one false alarm in ten is what an on-call engineer bears"),
        "moving_below": Param(0.1, "as sure as for stopped"),
    },
)
def job_progress() -> str:
    """Whether each job that ranks wait in is stopped."""
    return """
        SELECT job, stopped, CASE WHEN stopped >= $stopped_above THEN 'stopped'
            WHEN stopped <= $moving_below THEN 'moving' ELSE 'unclear' END AS state, moved,
            undated, why
        FROM (
            SELECT r.job, 1 / (1 + exp(-coalesce(sum(s.weight), 0))) AS stopped,
                coalesce(bool_or(s.weight < 0 AND s.name IN (
                    'time', 'same place', 'file times', 'contradiction')), false) AS moved,
                -- Neither its files nor what the watchdog had seen by then.
                coalesce(bool_or(s.name = 'undated') AND bool_and(s.name <> 'watchdog'), false)
                    AS undated,
                -- What says nothing either way is no reason, unless there is no other.
                coalesce(
                    string_agg(s.but || s.why, '; ' ORDER BY abs(s.weight) DESC, s.name)
                        FILTER (s.weight <> 0),
                    string_agg(s.why, '; ' ORDER BY s.name),
                    'nothing shows when it was recorded') AS why
            FROM (SELECT DISTINCT job FROM hang_roots) r
            LEFT JOIN (
                SELECT *, CASE WHEN weight * sum(weight) OVER j < 0 THEN 'but ' ELSE '' END AS but
                FROM progress_symptoms WINDOW j AS (PARTITION BY job)) s USING (job)
            GROUP BY r.job)
    """
