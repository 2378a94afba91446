"""The forward and backward tasks of pipelines: the vertices of the trace graph.

The ranks of a tensor-parallel group work on one task together, and each call of the group waits for
its last member. So a group is one vertex: it begins when the last member could begin, and ends when
the last member ends (VenusTrace 3.3).

Each tensor-parallel rank sends to the rank in its place of the next stage. The shorter of both
sides shows the transfer: the other side came first and waited. This holds for one pair, not for the
longest waits of a group. If the receiver came last, part of the transfer may have been over, so the
duration is a lower bound.
"""

from __future__ import annotations

from oncall.evidence import Param, relation

VERTEX = ["job", "iteration", "replica", "stage", "chunk", "micro_batch", "task"]


_WHERE = ", ".join(VERTEX)


@relation(
    "stage_vertices",
    reads=["stage_work"],
    empty_without=["stage_work"],
    columns=[
        ("vertex", "BIGINT", "", "its number"),
        *VERTEX[:-1],
        ("task", "VARCHAR", "", "forward or backward"),
        ("rank", "INTEGER", "", "the deciding member of the tensor-parallel group"),
        "node",
        ("ranks", "INTEGER", "ranks", "members seen"),
        ("started_ns", "BIGINT", "ns", "when the group could begin, common time"),
        ("ended_ns", "BIGINT", "ns", "when the group was done; NULL: no end observed"),
        ("duration_ns", "BIGINT", "ns", "from when the group could begin until it was done"),
        ("own_ns", "BIGINT", "ns", "own time of the member with most; NULL: not recorded"),
        ("head_ns", "BIGINT", "ns", "how far apart members were there, if only calls show it"),
        ("late_ns", "BIGINT", "ns", "how much later than the median member that one entered"),
        ("calls", "INTEGER", "calls", "calls of the group in the task"),
        "whole",
        ("recv_ns", "BIGINT", "ns", "what receiving its input took; NULL: not seen"),
        ("send_ns", "BIGINT", "ns", "what sending its result took; NULL: not seen"),
        ("held", "BOOLEAN", "", "it began only when the send of the task before it was over"),
        "clock_error_ns",
    ],
    source="VenusTrace 3.2.1, 3.3 (trace model), Fig. 6, Fig. 7",
    params={
        "blocking": Param("99 %", "of tasks begin after the send before: sends delay ranks"),
        "together": Param("5 %", "of a task or transfer: two ends of a call are so far apart"),
    },
)
def stage_vertices() -> str:
    """Each forward and backward of each pipeline, its tensor-parallel group as one.

    Of a transfer, the side that comes second sees what the transfer itself takes, on its own
    clock; the other waits for that side, too. Where sends block, a task that needs no input begins
    when the send before it is over.
    """
    # Who decides: the member with the most time of its own, else the one that enters last.
    decides = "coalesce(own_ns, late_ns, last_calls, ended_ns - started_ns, 0)"
    # By that and then the lowest rank, as one number: a pair takes longer to compare.
    decides = f"{decides}::HUGEINT * 4294967296 - rank"
    # Both ends of what is sent and received together differ by less than that.
    after = "sent_before_ns - started_ns < $together * (ended_ns - started_ns)"
    return f"""
        WITH seen AS NOT MATERIALIZED (
            SELECT * REPLACE (coalesce(replica, 0) AS replica, coalesce(chunk, 0) AS chunk),
                coalesce(whole, true) OR ended_ns IS NULL AS sound
            FROM stage_work
            WHERE iteration IS NOT NULL AND stage IS NOT NULL AND micro_batch IS NOT NULL),
        -- A hole in one member's recording is no delay: its group tells without it.
        holes AS (SELECT DISTINCT {_WHERE} FROM seen WHERE NOT sound),
        whole_groups AS MATERIALIZED (
            SELECT DISTINCT {_WHERE} FROM seen SEMI JOIN holes USING ({_WHERE})
            WHERE coalesce(whole, true)),
        work AS NOT MATERIALIZED (
            SELECT * FROM seen WHERE sound OR ({_WHERE}) NOT IN (FROM whole_groups)),
        tasks AS (
            SELECT {_WHERE}, arg_max(rank, {decides}) AS rank, arg_max(node, {decides}) AS node,
                count(*) AS ranks, max(started_ns) AS started_ns,
                CASE WHEN bool_and(ended_ns IS NOT NULL) THEN max(ended_ns) END AS ended_ns,
                CASE WHEN bool_and(started_ns = first_call_ns) THEN min(started_ns) END AS first_ns,
                arg_max(late_ns, {decides}) AS late_ns,
                arg_max(last_calls, {decides}) AS last_calls, max(calls) AS calls,
                max(own_ns) AS own_ns,
                bool_and(coalesce(whole, true)) AS whole, max(clock_error_ns) AS clock_error_ns
            FROM work WHERE task IN ('forward', 'backward') GROUP BY ALL),
        transfers AS (
            SELECT * REPLACE (split_part(task, '_', 1) AS task), split_part(task, '_', 2) AS side,
                ended_ns - started_ns AS took_ns
            FROM work
            WHERE task IN ('forward_send', 'backward_send', 'forward_recv', 'backward_recv')
                AND ended_ns >= started_ns),
        sides AS (
            SELECT {_WHERE}, max(took_ns) FILTER (side = 'recv') AS recv_ns,
                max(took_ns) FILTER (side = 'send') AS send_ns,
                max(started_ns) FILTER (side = 'recv') AS asked_ns,
                max(ended_ns) FILTER (side = 'send') AS sent_ns
            FROM transfers GROUP BY ALL),
        ordered AS (
            SELECT t.*, recv_ns, send_ns,
                -- Before what needs no input lies what an iteration begins with.
                CASE WHEN first_ns IS NULL OR asked_ns IS NULL THEN 0
                    ELSE greatest(started_ns - greatest(first_ns, asked_ns), 0) END AS head_ns,
                lag(sent_ns) OVER rank AS sent_before_ns,
                -- After the last task all replicas wait for one another, which is not its time.
                send_ns IS NULL AND calls = 0 AND own_ns > 0 AND lead(started_ns) OVER rank IS NULL
                    AS closes
            FROM tasks t LEFT JOIN sides USING ({_WHERE})
            WINDOW rank AS (PARTITION BY job, iteration, replica, stage
                ORDER BY started_ns, chunk, micro_batch, task)),
        habits AS (
            SELECT job, avg(({after})::INTEGER) >= $blocking AS blocking
            FROM ordered WHERE recv_ns IS NOT NULL AND sent_before_ns IS NOT NULL GROUP BY job),
        begun AS (
            SELECT * REPLACE (CASE WHEN blocking AND started_ns IS NOT NULL
                    THEN greatest(started_ns, sent_before_ns) ELSE started_ns END AS started_ns,
                CASE WHEN closes THEN least(ended_ns, started_ns + own_ns) ELSE ended_ns END
                    AS ended_ns)
            FROM ordered LEFT JOIN habits USING (job))
        SELECT row_number() OVER (ORDER BY {_WHERE}) - 1 AS vertex, *,
            greatest(ended_ns - started_ns, 0) AS duration_ns, coalesce({after}, false) AS held
        FROM begun
    """


PAIR_COLUMNS = [
    ("sender", "INTEGER", "", "the rank that sends; NULL: not observed"),
    ("sender_node", "VARCHAR", "", "its host"),
    ("receiver", "INTEGER", "", "the rank that receives"),
    ("started_ns", "BIGINT", "ns", "when the later of both was there, common time"),
    ("ended_ns", "BIGINT", "ns", "when it had received its input"),
    ("took_ns", "BIGINT", "ns", "in between, of the side that took less; NULL: not recorded"),
    ("whole", "BOOLEAN", "", "the sender came last: all of the transfer is in it; NULL: unknown"),
]


@relation(
    "stage_transfers",
    reads=["stage_work"],
    empty_without=["stage_work"],
    columns=[*VERTEX, *PAIR_COLUMNS],
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
            s.rank AS sender, s.node AS sender_node, r.rank AS receiver,
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
