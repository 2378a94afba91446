"""Which pipeline stage hangs, if no task shows it.

This is the case where calls alone are recorded, and where tasks of the last iteration could not be
labelled, or were labelled as those of another stage than the rank's pipeline communicator says. The
rank that all others wait for is still known, and so is its place in the job.
"""

from __future__ import annotations

from oncall.evidence import relation


@relation(
    "hang_stages",
    reads=["stage_work"],
    optional=[
        "hang_roots",
        "awaited_callers",
        "called_transfers",
        "overdue_calls",
        "stage_layout",
        "in_flight",
        "operations",
        "training_iterations",
    ],
    empty_without=["hang_roots", "stage_work"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("replica", "INTEGER", "", "the pipeline"),
        ("stage", "INTEGER", "", "pipeline stage"),
        (
            "rank",
            "INTEGER",
            "",
            "the rank that others wait for, or that sends; NULL: one of its group",
        ),
        ("node", "VARCHAR", "", "its host"),
        ("peer", "INTEGER", "", "the rank that receives, of a transfer that hangs"),
        ("peer_stage", "INTEGER", "", "its stage"),
        (
            "waits_in",
            "VARCHAR",
            "",
            "Send to a stage, or before its next call; NULL: not in a call",
        ),
        ("since_ns", "BIGINT", "ns", "when the last task of the job began or ended, common time"),
        ("silent_ns", "BIGINT", "ns", "for how long no task of the job has begun or ended"),
        ("baseline_ns", "DOUBLE", "ns", "what an iteration takes"),
        ("network", "BOOLEAN", "", "both ends of the transfer are in it"),
        (
            "went_on_ns",
            "BIGINT",
            "ns",
            "where only calls are recorded: for how long others went on without it",
        ),
    ],
    source="VenusTrace 3.3, Algorithm 1; CCL-D 4.2.2",
)
def hang_stages() -> str:
    """Ranks where a chain of waiting ends, each with its place in the pipeline."""
    return """
        WITH pipelines AS (
            SELECT job FROM stage_layout GROUP BY job HAVING max(stage) > 0),
        ranks AS (
            SELECT DISTINCT job, rank, NULL::INTEGER AS peer, false AS grouped FROM hang_roots
            WHERE how = 'absent' AND rank IS NOT NULL
            UNION ALL
            SELECT job, rank, NULL, true FROM awaited_callers
            SEMI JOIN (FROM hang_roots WHERE kind = 'coll' AND how = 'together') USING (job)
            WHERE joint
            UNION ALL
            SELECT r.job, i.rank, i.peer, false
            FROM hang_roots r JOIN (
                SELECT job, rank, peer, entered_ns FROM in_flight WHERE op = 'Send'
                UNION ALL
                SELECT job, rank, peer, called_ns FROM called_transfers
                WHERE last AND answered AND NOT receives) i USING (job)
            WHERE r.how = 'together' AND r.kind = 'p2p' AND len(r.ends) = 2
                AND list_contains(r.ends, i.rank) AND list_contains(r.ends, i.peer)
            QUALIFY row_number() OVER (
                PARTITION BY r.job, r.comm, r.seq ORDER BY i.entered_ns, i.rank) = 1),
        activity AS (
            SELECT job, max(greatest(started_ns, ended_ns)) AS last_ns FROM stage_work
            GROUP BY job),
        observed AS (SELECT job, max(observed_ns) AS now_ns FROM operations GROUP BY job),
        baseline AS (SELECT job, median(coalesce(baseline_ns, duration_ns)) AS baseline_ns
            FROM training_iterations GROUP BY job)
        SELECT r.job, coalesce(l.replica, 0) AS replica, l.stage,
            CASE WHEN NOT grouped THEN r.rank END AS rank, l.node, r.peer, p.stage AS peer_stage,
            CASE WHEN p.stage IS NOT NULL THEN 'Send to stage ' || p.stage
                WHEN o.waited_ns IS NOT NULL THEN 'what comes before its next call' END
                AS waits_in, last_ns AS since_ns,
            now_ns - last_ns AS silent_ns, u.baseline_ns, r.peer IS NOT NULL AS network,
            o.waited_ns AS went_on_ns
        FROM ranks r SEMI JOIN pipelines USING (job)
        JOIN stage_layout l USING (job, rank)
        LEFT JOIN stage_layout p ON p.job = r.job AND p.rank = r.peer
        LEFT JOIN overdue_calls o ON o.job = r.job AND o.rank = r.rank
        LEFT JOIN activity USING (job) LEFT JOIN observed USING (job)
        LEFT JOIN baseline u USING (job)
        WHERE l.stage IS NOT NULL
        QUALIFY row_number() OVER (PARTITION BY r.job, l.replica, l.stage,
            CASE WHEN NOT grouped THEN r.rank END ORDER BY o.waited_ns DESC NULLS LAST,
                r.rank, r.peer) = 1
    """
