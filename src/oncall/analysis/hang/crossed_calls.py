"""Where calls alone are recorded: ranks that call two communicators in different orders.

All members of two communicators run one program, so they call both in the same order. Where they do
not, each waits for a call that the other makes later. This shows without clocks, and wherever a log
was cut: a log that ends early is only shorter.
"""

from __future__ import annotations

from oncall.evidence import Param, relation


@relation(
    "crossed_calls",
    reads=["joint_calls", "call_fronts"],
    empty_without=["call_fronts"],
    columns=[
        ("job", "VARCHAR", "", "a job of which only calls are recorded"),
        ("comm", "UBIGINT", "", "the communicator whose call the rank makes first"),
        ("seq", "BIGINT", "", "that call"),
        ("rank", "INTEGER", "", "who makes it first; where two are at odds, both have a row"),
        ("later_comm", "UBIGINT", "", "the communicator whose call the others make first"),
        ("later_seq", "BIGINT", "", "that call"),
        ("others", "BIGINT", "ranks", "members that make the calls in the other order"),
    ],
    source="beyond VenusTrace: order of calls across communicators",
    params={
        "ahead": Param(16, "calls that hosts may make ahead of their devices, here as elsewhere"),
    },
)
def crossed_calls() -> str:
    """Neighbouring calls at the end of a log that members of both communicators make crosswise.

    A host with several threads makes calls in any order all the time. Such a job shows crossed
    calls earlier in the log, too; then they mean nothing.
    """
    return """
        WITH made AS (
            SELECT j.job, j.rank, j.comm, j.seq,
                row_number() OVER c AS nth, count(*) OVER (PARTITION BY j.job, j.rank) AS calls
            FROM joint_calls j SEMI JOIN call_fronts USING (job, comm, rank)
            WINDOW c AS (PARTITION BY j.job, j.rank ORDER BY j.called_ns, j.comm, j.seq)),
        neighbours AS (
            SELECT job, rank, comm, seq, lead(comm) OVER c AS later_comm,
                lead(seq) OVER c AS later_seq, calls - nth AS back
            FROM made WINDOW c AS (PARTITION BY job, rank ORDER BY nth)
            -- What a rank has not called, it would call after all that it has.
            UNION ALL
            SELECT m.job, m.rank, m.comm, m.seq, f.comm, f.seq + 1, 0
            FROM made m JOIN call_fronts f USING (job, rank)
            WHERE m.nth = m.calls AND f.behind AND f.seq IS NOT NULL),
        crosswise AS (
            SELECT n.*, r.rank AS other, r.back AS other_back
            FROM neighbours n JOIN neighbours r ON r.job = n.job AND r.rank <> n.rank
                AND r.comm = n.later_comm AND r.seq = n.later_seq
                AND r.later_comm = n.comm AND r.later_seq = n.seq
            WHERE n.comm <> n.later_comm),
        counted AS (
            SELECT job, comm, seq, rank, later_comm, later_seq, count(*) AS others,
                max(greatest(back, other_back)) AS back
            FROM crosswise GROUP BY ALL)
        SELECT * EXCLUDE (back) FROM (
            FROM counted QUALIFY max(back) OVER (PARTITION BY job) <= $ahead)
        -- Those who are fewer go against the rest.
        QUALIFY others = max(others) OVER (PARTITION BY job,
            least(comm, later_comm), greatest(comm, later_comm))
    """
