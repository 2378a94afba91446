"""Where all ranks are: what each rank waits in, and the calls that were never made.

It exists whenever the evidence ends with ranks waiting, however long they have waited. Whether that
is a hang is another question, which `job_progress` answers.
"""

from __future__ import annotations

from oncall.evidence import Param, relation


@relation(
    "front",
    reads=["blocked_operations|call_fronts"],
    columns=[
        "job",
        ("rank", "INTEGER", "", "a rank that waits"),
        ("comm", "UBIGINT", "", "communicator of the first operation that it waits in"),
        "kind",
        ("seq", "BIGINT", "", "its number there"),
        ("op", "VARCHAR", "", "operation; NULL: only counters are known"),
        ("since_ns", "BIGINT", "ns", "since when; NULL: unknown"),
        ("missing", "INTEGER[]", "", "members that keep it from completing; none: all called it"),
        ("done_seq", "BIGINT", "", "the last collective that completed there on this rank"),
    ],
    source="CCL-D 4.2.2",
)
def front() -> str:
    """The first operation that each waiting rank is blocked in, and the members that have not made
    the call."""
    return """
        WITH waiting AS (
            SELECT job, rank, comm, kind, seq, op, coalesce(entered_ns, called_ns) AS since_ns
            FROM blocked_operations WHERE rank IS NOT NULL
            UNION ALL
            SELECT job, rank, comm, 'coll', seq, NULL, NULL FROM call_fronts WHERE ahead),
        missing AS (
            SELECT job, comm, kind, seq, owner, list(DISTINCT rank ORDER BY rank) AS missing
            FROM holders WHERE how <> 'elsewhere' GROUP BY ALL
            UNION ALL
            SELECT a.job, a.comm, 'coll', a.seq, NULL, list(DISTINCT b.rank ORDER BY b.rank)
            FROM call_fronts a JOIN call_fronts b USING (job, comm)
            WHERE a.ahead AND b.behind AND coalesce(b.seq < a.seq, true) GROUP BY ALL)
        SELECT w.job, w.rank, w.comm, w.kind, w.seq, w.op, w.since_ns,
            coalesce(m.missing, []) AS missing, h.done_seq
        FROM waiting w
        LEFT JOIN missing m ON m.job = w.job AND m.comm = w.comm AND m.kind = w.kind
            AND m.seq = w.seq AND coalesce(m.owner, w.rank) = w.rank
        LEFT JOIN heads h ON h.job = w.job AND h.comm = w.comm AND h.rank = w.rank
        QUALIFY row_number() OVER (
            PARTITION BY w.job, w.rank ORDER BY w.since_ns, w.comm, w.seq) = 1
    """


@relation(
    "unmet_calls",
    reads=["hang_roots", "job_progress"],
    empty_without=["hang_roots"],
    columns=[
        "job comm",
        ("seq", "BIGINT", "", "the operation there where a chain of waiting ends"),
        "kind op comm_name",
        ("label", "VARCHAR", "", "what it is for, else its name"),
        ("how", "VARCHAR", "", "absent, silent (no data), cycle (deadlock), or together"),
        ("state", "VARCHAR", "", "stopped: the job hangs here; unclear: it may"),
        ("stopped", "DOUBLE", "0..1", "the probability that the job is stopped"),
        "why",
        ("size", "BIGINT", "ranks", "members"),
        ("reporting", "BIGINT", "ranks", "of them with data"),
        ("unknown", "BIGINT", "ranks", "members of a communicator that no record names"),
        ("victims", "BIGINT", "ranks", "ranks that wait because of it, anywhere"),
        ("waiting", "BIGINT", "ranks", "ranks of the job that wait, anywhere"),
        ("ranks", "BIGINT", "ranks", "ranks of the job"),
        ("at_ns", "BIGINT", "ns", "when its first member entered"),
    ],
    source="CCL-D 4.2.2",
    params={
        "rather_stopped": Param(
            0.6, "where ranks wait anyway, a warning must be clearly likelier right than wrong"
        ),
    },
)
def unmet_calls() -> str:
    """The operations that keep each job from going on, unless the job is seen to move.

    Until it is certain that a job is stopped, there is one row per job: the call that holds up most
    ranks. A rank without data, or a group with unknown members, may be a victim if another cause is
    seen.
    """
    return """
        WITH jobs AS (
            SELECT job, bool_or(how <> 'silent') AS seen,
                bool_or(how NOT IN ('silent', 'together')) AS called,
                count(DISTINCT rank) AS culprits
            FROM hang_roots GROUP BY job),
        roots AS (
            SELECT job, comm, seq, any_value(kind) AS kind, max(how) AS how,
                max(victims) AS victims
            FROM hang_roots GROUP BY job, comm, seq),
        places AS (
            SELECT job, comm, seq, mode(op ORDER BY op) FILTER (state <> 'absent') AS op,
                any_value(comm_name) AS comm_name, any_value(role) AS role, count(*) AS size,
                count(*) FILTER (state <> 'silent') AS reporting, min(entered_ns) AS at_ns,
                count(*) FILTER (state = 'absent') AS absent
            FROM hang_members GROUP BY ALL),
        -- Missing data is evidence, never health; of counters alone they are the ranks that wait.
        unknown AS (
            SELECT job, comm, max(size) - count(DISTINCT rank) AS unknown FROM members
            GROUP BY ALL HAVING unknown > 0),
        crowd AS (SELECT job, count(DISTINCT rank) AS waiting FROM front GROUP BY job),
        world AS (SELECT job, count(DISTINCT rank) AS ranks FROM processes GROUP BY job)
        SELECT r.job, r.comm, r.seq, r.kind, p.op, p.comm_name,
            coalesce(nullif(p.role, 'undefined'),
                CASE WHEN regexp_full_match(p.comm_name, '[0-9]+') THEN 'group ' ELSE '' END
                    || p.comm_name,
                'the communicator') AS label, r.how, g.state, g.stopped,
            g.why, p.size, p.reporting, u.unknown,
            coalesce(nullif(r.victims, 0), u.unknown, 0) AS victims,
            coalesce(c.waiting, u.unknown) AS waiting, w.ranks, p.at_ns
        FROM roots r JOIN jobs j USING (job) JOIN places p USING (job, comm, seq)
        JOIN job_progress g USING (job)
        LEFT JOIN unknown u USING (job, comm) LEFT JOIN crowd c USING (job)
        LEFT JOIN world w USING (job)
        WHERE (g.state = 'stopped' OR (g.stopped > $rather_stopped AND NOT g.undated))
            AND NOT (r.how = 'silent' AND j.seen)
            -- Of counters alone: unless all others wait for a few, it is a job in motion.
            AND (g.state = 'stopped' OR p.op IS NOT NULL
                OR (r.victims + j.culprits >= w.ranks AND 2 * p.absent <= p.size))
            AND NOT (r.kind = 'coll' AND j.called AND r.how IN ('silent', 'together')
                AND (p.size = 1 OR u.unknown IS NOT NULL))
        QUALIFY g.state = 'stopped' OR row_number() OVER (
            PARTITION BY r.job ORDER BY r.how = 'together', r.victims DESC, p.at_ns, r.comm,
                r.seq) = 1
    """
