"""Transfers that mirror one another: those of the ranks of one tensor group.

The ranks of a tensor group do the same work in step, and each sends to and receives from a peer of
its own. When their stage stops, as many transfers wait as the group has ranks: one place, not many.
"""

from __future__ import annotations

from oncall.evidence import relation


@relation(
    "mirrored_calls",
    reads=["hang_roots", "operations"],
    empty_without=["hang_roots", "operations"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("comm", "UBIGINT", "", "communicator of a transfer that one of the group did not call"),
        ("seq", "BIGINT", "", "the transfer's number there, the same for all of them"),
        ("rank", "INTEGER", "", "who did not call it"),
        ("team", "UBIGINT", "", "communicator of their tensor group"),
        ("shown", "UBIGINT", "", "the communicator whose transfer stands for all of them"),
    ],
    source="Megatron-LM 3 (tensor parallel ranks of a stage); beyond the papers",
)
def mirrored_calls() -> str:
    """The transfers that ranks of one tensor group did not call, where several are at the same."""
    return """
        WITH roots AS (FROM hang_roots WHERE kind = 'p2p' AND how = 'absent'),
        calls AS (
            SELECT job, rank, comm, kind, lag(comm) OVER before AS comm_before,
                lag(kind) OVER before AS kind_before
            FROM operations SEMI JOIN roots USING (job, rank)
            WINDOW before AS (PARTITION BY job, rank ORDER BY called_ns, seq)),
        -- A tensor group calls before each transfer and more often than that; replicas, once an
        -- iteration.
        preceding AS (
            SELECT job, rank, mode(comm_before) FILTER (kind_before = 'coll') AS comm,
                count(*) AS transfers
            FROM calls WHERE kind = 'p2p' GROUP BY ALL),
        teams AS (
            SELECT job, rank, comm AS team FROM calls JOIN preceding USING (job, rank, comm)
            GROUP BY job, rank, comm, transfers HAVING count(*) > transfers)
        SELECT job, comm, seq, rank, team, min(comm) OVER alike AS shown
        FROM roots JOIN teams USING (job, rank)
        WINDOW alike AS (PARTITION BY job, team, seq)
        QUALIFY count(*) OVER alike > 1
        ORDER BY job, team, seq, rank
    """
