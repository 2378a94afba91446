"""The longest wait of a job, shown before it is long enough to be called a hang."""

from __future__ import annotations

from oncall.evidence import relation


@relation(
    "longest_wait",
    reads=["hang_roots"],
    optional=["hang_members"],
    empty_without=["hang_roots"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("comm", "UBIGINT", "", "communicator"),
        ("seq", "BIGINT", "", "operation number"),
        ("op", "VARCHAR", "", "operation"),
        ("label", "VARCHAR", "", "what the communicator is for, or its name"),
        ("ranks", "INTEGER[]", "", "ranks that wait in it"),
        ("waited_ns", "BIGINT", "ns", "for how long, the longest of them"),
        (
            "held_by",
            "INTEGER[]",
            "",
            "ranks that keep it from completing; none: all have entered it",
        ),
    ],
    source="CCL-D 4.2.1",
)
def longest_wait() -> str:
    """For each job, the operation where waiting ends that has held ranks up for longest."""
    return """
        WITH causes AS (
            SELECT job, comm, kind, seq, coalesce(
                list(rank ORDER BY rank) FILTER (rank IS NOT NULL), []) AS held_by
            FROM hang_roots GROUP BY ALL)
        SELECT c.job, c.comm, c.seq, any_value(m.op) AS op,
            coalesce(any_value(m.role), any_value(m.comm_name)) AS label,
            list(m.rank ORDER BY m.rank) AS ranks, max(m.waited_ns) AS waited_ns,
            any_value(c.held_by) AS held_by
        FROM causes c JOIN hang_members m USING (job, comm, kind, seq)
        WHERE m.waited_ns IS NOT NULL GROUP BY c.job, c.comm, c.kind, c.seq
        QUALIFY row_number() OVER (
            PARTITION BY c.job ORDER BY max(m.waited_ns) DESC, count(*) DESC, c.comm, c.seq) = 1
    """
