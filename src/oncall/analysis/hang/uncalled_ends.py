"""Operations that completed on some rank although another member never called them.

None can. Either that member's dump is older, or they failed: where a process ends, its peers'
calls end with an error, which a recorder takes for completion. If a rank called something after
such an operation, it had succeeded. If none did, both are possible.
"""

from __future__ import annotations

from oncall.evidence import relation


@relation(
    "uncalled_ends",
    reads=["operations", "frontier", "recordings"],
    columns=[
        ("job", "VARCHAR", "", "a job in which no rank went on after such an operation"),
        ("rank", "INTEGER", "", "the member that never called it"),
        ("ended", "INTEGER[]", "ranks", "on which it completed, and which called nothing since"),
    ],
    source="beyond CCL-D: what is aborted counts as completed",
)
def uncalled_ends() -> str:
    """Members without the last call of others that completed, where nobody went on."""
    return """
        WITH done AS (
            SELECT job, comm, rank, max(seq) AS seq, max(called_ns) AS called_ns FROM operations
            WHERE done AND kind = 'coll'
                AND op IN ('AllReduce', 'AllGather', 'ReduceScatter', 'AllToAll', 'Barrier')
            GROUP BY ALL),
        newest AS (SELECT job, rank, max(called_ns) AS called_ns FROM operations GROUP BY ALL),
        uncalled AS (
            SELECT d.job, f.rank, d.rank AS ended,
                n.called_ns > d.called_ns OR d.seq > f.entered_seq + 1 AS went_on
            FROM done d JOIN frontier f ON f.job = d.job AND f.comm = d.comm
                AND f.entered_seq < d.seq
            SEMI JOIN recordings r ON r.job = f.job AND r.rank = f.rank
                AND r.kind = 'flight_recorder' AND r.problem IS NULL
            JOIN newest n ON n.job = d.job AND n.rank = d.rank)
        SELECT job, rank, list(DISTINCT ended ORDER BY ended) AS ended FROM uncalled
        ANTI JOIN (FROM uncalled WHERE coalesce(went_on, true)) USING (job)
        GROUP BY job, rank
    """
