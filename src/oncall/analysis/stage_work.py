"""What every rank did in every iteration, on one clock: the input of all analyses of stages."""

from __future__ import annotations

from oncall.evidence import relation
from oncall.evidence.schema import BY_NAME

TASK_COLUMNS = [(c.name, c.type, c.unit, c.meaning) for c in BY_NAME["stage_tasks"].columns]
_INSTANTS = ("started_ns", "ended_ns", "first_call_ns", "last_call_ns")


@relation(
    "stage_work",
    reads=["stage_tasks"],
    optional=["ranks", "clock_offsets", "jobs"],
    columns=[
        *TASK_COLUMNS,
        ("node", "VARCHAR", "", "host"),
        ("replica", "INTEGER", "", "place in the data-parallel group: which pipeline"),
        ("tensor_rank", "INTEGER", "", "place in the tensor-parallel group"),
        ("clock_error_ns", "BIGINT", "ns", "by how much its instants may be off; NULL: not known"),
    ],
    source="VenusTrace 3.3",
)
def stage_work() -> str:
    """Tasks as told or labelled, with the rank's place in the job. Instants are common time."""
    moved = ", ".join(f"t.{name} - coalesce(c.offset_ns, 0) AS {name}" for name in _INSTANTS)
    return f"""
        WITH placed AS (SELECT DISTINCT ON (job, rank) job, rank, node FROM ranks),
        sizes AS (
            SELECT job, any_value(coalesce(tp, 1)) AS tp,
                any_value(world_size // coalesce(pp, 1)) AS ranks_a_stage
            FROM jobs GROUP BY job)
        SELECT t.* REPLACE ({moved}), p.node,
            (t.rank % s.ranks_a_stage) // s.tp AS replica, t.rank % s.tp AS tensor_rank,
            c.error_ns AS clock_error_ns
        FROM stage_tasks t LEFT JOIN placed p USING (job, rank)
        LEFT JOIN clock_offsets c ON c.job = t.job AND c.node = p.node
        LEFT JOIN sizes s ON s.job = t.job
    """
