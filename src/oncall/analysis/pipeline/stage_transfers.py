"""The transfers from stage to stage by pair of ranks, and how long they took.

Each tensor-parallel rank sends to the rank in its place of the next stage. The shorter of both
sides shows the transfer: the other side came first and waited. This holds for one pair, not for the
longest waits of a group. If the receiver came last, part of the transfer may have been over, so the
duration is a lower bound.
"""

from __future__ import annotations

from oncall.analysis.pipeline.stage_vertices import VERTEX_COLUMNS
from oncall.evidence import relation

PAIR_COLUMNS = [
    ("sender", "INTEGER", "", "the rank that sends; NULL: not observed"),
    ("sender_node", "VARCHAR", "", "its host"),
    ("receiver", "INTEGER", "", "the rank that receives"),
    ("receiver_node", "VARCHAR", "", "its host"),
    ("started_ns", "BIGINT", "ns", "when the later of both was there, common time"),
    ("ended_ns", "BIGINT", "ns", "when it had received its input"),
    ("took_ns", "BIGINT", "ns", "in between, of the side that took less; NULL: not recorded"),
    ("whole", "BOOLEAN", "", "the sender came last: all of the transfer is in it; NULL: unknown"),
]


@relation(
    "stage_transfers",
    reads=["stage_work"],
    empty_without=["stage_work"],
    columns=[*VERTEX_COLUMNS, *PAIR_COLUMNS],
    source="VenusTrace Fig. 7",
)
def stage_transfers() -> str:
    """The transfers to each task, one of each pair of ranks; the place is the receiver's."""
    return """
        WITH shape AS (SELECT job, max(stage) + 1 AS pp FROM stage_work GROUP BY job),
        work AS (
            SELECT * REPLACE (coalesce(replica, 0) AS replica, coalesce(chunk, 0) AS chunk,
                split_part(task, '_', 1) AS task), split_part(task, '_', 2) AS side, pp,
                coalesce(chunk, 0) * pp + stage AS position
            FROM stage_work JOIN shape USING (job)
            WHERE task IN ('forward_send', 'forward_recv', 'backward_send', 'backward_recv')
                AND iteration IS NOT NULL AND micro_batch IS NOT NULL
                AND coalesce(ended_ns >= started_ns, true))
        SELECT r.job, r.iteration, r.replica, r.stage, r.chunk, r.micro_batch, r.task,
            s.rank AS sender, s.node AS sender_node, r.rank AS receiver, r.node AS receiver_node,
            CASE WHEN s.ended_ns - s.started_ns < r.ended_ns - r.started_ns
                THEN s.started_ns ELSE r.started_ns END AS started_ns,
            CASE WHEN s.ended_ns - s.started_ns < r.ended_ns - r.started_ns
                THEN s.ended_ns ELSE r.ended_ns END AS ended_ns,
            least(s.ended_ns - s.started_ns, r.ended_ns - r.started_ns) AS took_ns,
            s.ended_ns - s.started_ns <= r.ended_ns - r.started_ns AS whole
        FROM work r LEFT JOIN work s ON s.side = 'send' AND s.job = r.job
            AND s.iteration = r.iteration AND s.replica = r.replica AND s.task = r.task
            AND s.micro_batch = r.micro_batch
            AND s.position = r.position + CASE r.task WHEN 'forward' THEN -1 ELSE 1 END
            AND s.tensor_rank IS NOT DISTINCT FROM r.tensor_rank
        WHERE r.side = 'recv'
    """
