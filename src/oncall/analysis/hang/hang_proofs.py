"""Jobs that cannot go on: every rank waits, directly or not, for ranks that make no call and do not
move, or for a call that can never complete.

A wait is judged by its age where nothing better is known. Where the collectors watch the processes,
who is waited for shows more: a checkpoint, an evaluation or a slow loader uses CPU time, reads or
waits for a device; a process that is stopped, or asleep in a lock that nobody will release, does
not. How long a sound process of this job rests without a call is learnt from the recording.
"""

from __future__ import annotations

from oncall.evidence import Param, relation


def _resting() -> str:
    """CTE `resting`: processes that do not move now; those of which no reading is new are gone."""
    return """
        resting AS (
            SELECT job, rank, state, blocked_in, still_ns, at_ns - still_ns AS since_ns
            FROM (FROM host_processes
                  QUALIFY at_ns >= max(at_ns) OVER (PARTITION BY node) - $missed
                      AND row_number() OVER (PARTITION BY job, rank ORDER BY at_ns DESC) = 1)
            WHERE still_ns IS NOT NULL)
    """


@relation(
    "normal_rests",
    reads=["host_processes", "operations"],
    columns=[
        ("job", "VARCHAR", "", "a job whose processes rested between two calls"),
        ("still_ns", "BIGINT", "ns", "for how long at most, and went on"),
    ],
    source="beyond CCL-D",
    params={"missed": Param("2 s", "two readings of processes: what lies between is not seen")},
)
def normal_rests() -> str:
    """How long sound processes of each job rest by themselves: not in a call, where they wait as
    long as others work, nor before the first, when all set up."""
    return f"""
        WITH {_resting()},
        starts AS (SELECT job, min(called_ns) AS at_ns FROM operations GROUP BY job),
        rests AS (
            SELECT p.job, p.rank, p.still_ns, p.at_ns - p.still_ns AS since_ns, p.at_ns
            FROM host_processes p JOIN starts s USING (job) LEFT JOIN resting r USING (job, rank)
            WHERE p.still_ns > $missed AND upper(p.state) <> 'T' AND p.at_ns - p.still_ns > s.at_ns
                AND coalesce(p.at_ns < r.since_ns, true))
        SELECT job, max(still_ns) AS still_ns FROM rests r
        WHERE NOT EXISTS (
            FROM operations o WHERE o.job = r.job AND o.rank = r.rank
                AND o.called_ns <= r.since_ns + $missed
                AND coalesce(o.ended_ns, o.observed_ns) >= r.at_ns - $missed)
        GROUP BY job
    """


@relation(
    "hang_proofs",
    reads=["hang_roots", "front"],
    empty_without=["hang_roots"],
    columns=[
        ("job", "VARCHAR", "", "a job all of whose ranks wait for what cannot come"),
        ("still_ns", "BIGINT", "ns", "for how long those waited for have not moved; NULL: ever"),
        ("normal_ns", "BIGINT", "ns", "for how long that, or nothing at all, is normal"),
        ("why", "VARCHAR", "", "what shows it"),
    ],
    source="beyond CCL-D",
    params={
        "missed": "normal_rests.missed",
        "blink": "progress_symptoms.blink",
        "rest": Param("4 s", "what a sound process may rest between two calls, by itself"),
    },
)
def hang_proofs() -> str:
    """Why each such job cannot go on, and against which time that counts."""
    return f"""
        WITH {_resting()}, culprits AS (SELECT DISTINCT job, rank, how FROM hang_roots),
        -- A call that members made in two ways, or in crossed order, completes never.
        never AS (
            SELECT DISTINCT job FROM odd_calls
            UNION SELECT job FROM culprits GROUP BY job HAVING bool_and(how = 'cycle')),
        held AS (
            SELECT c.job, min(CASE WHEN h.rank IS NULL THEN n.still_ns END) AS still_ns,
                max(CASE WHEN h.rank IS NULL THEN greatest($rest, coalesce(l.still_ns, 0))
                    ELSE $blink END) AS normal_ns,
                'rank ' || min(c.rank) || CASE count(*) WHEN 1 THEN ' has' ELSE
                    ' and ' || count(*) - 1 || ' more have' END
                    || CASE WHEN bool_or(h.rank IS NULL)
                        THEN ' not moved (' || concat_ws(', in ', 'state ' || max(n.state),
                            min(n.blocked_in)) || ')'
                        ELSE CASE count(*) WHEN 1 THEN ' no process' ELSE ' no processes' END
                            || ' that runs' END AS why
            FROM culprits c LEFT JOIN halted h USING (job, rank)
            LEFT JOIN resting n USING (job, rank) LEFT JOIN normal_rests l USING (job)
            GROUP BY c.job HAVING bool_and(h.rank IS NOT NULL OR n.still_ns IS NOT NULL)),
        world AS (SELECT job, count(DISTINCT rank) AS ranks FROM processes GROUP BY job),
        seen AS (
            SELECT job, count(DISTINCT rank) AS ranks
            FROM (SELECT job, rank FROM front UNION SELECT job, rank FROM culprits) GROUP BY job)
        SELECT job, h.still_ns, CASE WHEN n.job IS NULL THEN h.normal_ns ELSE $blink END
                AS normal_ns,
            CASE WHEN n.job IS NULL THEN h.why END AS why
        FROM (SELECT * FROM seen JOIN world USING (job, ranks)) LEFT JOIN held h USING (job)
        LEFT JOIN never n USING (job)
        WHERE h.job IS NOT NULL OR n.job IS NOT NULL
    """
