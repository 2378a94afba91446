"""Where a stopped job hangs: the first task that does not end (VenusTrace Algorithm 1).

In the incomplete graph of the newest iteration, the hang began at a stage that others wait for and
that itself waits for no other: it computes, or has no data. If every stage waits, the transfer
hangs that both of its ends have called. Of several such stages, and of the ranks of one stage, the
calls that are missing in their groups decide.

Without a pipeline there is no stage to blame. The labelled task that does not end says which stage,
micro-batch and transfer it is; its calls show that the job stopped at all, and which rank the
others wait for.
"""

from __future__ import annotations

from oncall.evidence import Param, relation


def _newest_iteration() -> str:
    """The calls of each pipeline's newest iteration, and which of them are open."""
    return """
        shape AS (
            SELECT job, max(stage) + 1 AS pp, max(iteration) AS iteration FROM stage_work
            WHERE started_ns IS NOT NULL GROUP BY job),
        work AS (
            SELECT w.* REPLACE (coalesce(replica, 0) AS replica, coalesce(chunk, 0) AS chunk), pp
            FROM stage_work w JOIN shape USING (job, iteration)),
        -- Where a recorder logs no ends, a call is open if its rank made none later.
        calls AS (
            SELECT *, ended_ns IS NULL AND started_ns IS NOT NULL AND (
                    coalesce(bool_or(ended_ns IS NOT NULL AND task LIKE '%_recv') OVER (
                        PARTITION BY job), false)
                    OR started_ns >= max(started_ns) OVER (PARTITION BY job, rank)) AS open
            FROM work)
    """


def _pending_tasks() -> str:
    """Each stage's first task that has not ended, or the one that is to come next."""
    return """
        tasks AS (
            SELECT job, replica, stage, chunk, micro_batch, task, min(started_ns) AS since_ns,
                arg_min(rank, (calls, rank)) FILTER (calls IS NOT NULL) AS rank,
                arg_min(node, (calls, rank)) FILTER (calls IS NOT NULL) AS node,
                max(calls) - min(calls) AS missing_calls
            FROM work WHERE task IN ('forward', 'backward')
            GROUP BY job, replica, stage, chunk, micro_batch, task
            HAVING NOT bool_and(ended_ns IS NOT NULL)),
        -- Of a stage that did not get to begin one: the one that came next the last time.
        before AS (
            SELECT *, row_number() OVER (PARTITION BY job, replica, stage
                ORDER BY at_ns, chunk, micro_batch, task) AS place
            FROM (
                SELECT job, coalesce(replica, 0) AS replica, stage, coalesce(chunk, 0) AS chunk,
                    micro_batch, task, min(started_ns) AS at_ns
                FROM stage_work w JOIN shape h USING (job)
                WHERE w.iteration = h.iteration - 1 AND task IN ('forward', 'backward')
                GROUP BY ALL)),
        done AS (
            SELECT job, replica, stage, count(DISTINCT (chunk, micro_batch, task)) FILTER (
                task IN ('forward', 'backward') AND ended_ns IS NOT NULL) AS ended
            FROM work GROUP BY job, replica, stage),
        nexts AS (
            SELECT b.job, b.replica, b.stage, chunk, micro_batch, task, NULL AS since_ns,
                NULL AS rank, NULL AS node, NULL AS missing_calls
            FROM before b LEFT JOIN done d USING (job, replica, stage)
            WHERE place = coalesce(ended, 0) + 1),
        pending AS (
            FROM (FROM tasks UNION ALL BY NAME FROM nexts)
            QUALIFY row_number() OVER (PARTITION BY job, replica, stage
                ORDER BY since_ns NULLS LAST, rank NULLS LAST, task DESC, micro_batch, chunk) = 1)
    """


def _waiting_stages() -> str:
    """Which stages wait in a transfer, which are waited for, and which compute."""
    return """
        transfers AS (
            SELECT job, replica, stage, any_value(iteration) AS iteration,
                bool_or(open AND task = 'forward_recv') AS takes_forward,
                bool_or(open AND task = 'backward_recv') AS takes_backward,
                bool_or(open AND task = 'forward_send') AS gives_forward,
                bool_or(open AND task = 'backward_send') AS gives_backward,
                count(DISTINCT rank) AS members
            FROM calls GROUP BY job, replica, stage),
        places AS (
            SELECT DISTINCT job, coalesce(replica, 0) AS replica, stage, pp
            FROM stage_work JOIN shape USING (job) WHERE stage IS NOT NULL),
        stages AS (
            SELECT p.*, t.* EXCLUDE (job, replica, stage) FROM places p
            LEFT JOIN transfers t USING (job, replica, stage)),
        around AS (
            SELECT s.*, coalesce(s.takes_forward OR s.takes_backward OR s.gives_forward
                    OR s.gives_backward, false) AS waiting,
                coalesce(n.takes_forward, false) OR coalesce(n.gives_backward, false)
                    OR coalesce(b.gives_forward, false) OR coalesce(b.takes_backward, false)
                    AS awaited,
                coalesce(s.gives_forward AND n.takes_forward, false) AS stands_forward,
                coalesce(s.gives_backward AND b.takes_backward, false) AS stands_backward
            FROM stages s
            LEFT JOIN stages n ON n.job = s.job AND n.replica = s.replica
                AND n.stage = (s.stage + 1) % s.pp AND s.pp > 1
            LEFT JOIN stages b ON b.job = s.job AND b.replica = s.replica
                AND b.stage = (s.stage + s.pp - 1) % s.pp AND s.pp > 1),
        judged AS (
            SELECT a.*, NOT waiting AND (awaited OR p.since_ns IS NOT NULL) AS computes,
                p.* EXCLUDE (job, replica, stage)
            FROM around a LEFT JOIN pending p USING (job, replica, stage))
    """


def _ranks_behind() -> str:
    """The ranks of a stage that have not made the calls that others wait for."""
    return """
        -- Who makes the calls that others wait for, across all communicators.
        seats AS (
            SELECT DISTINCT job, rank, coalesce(replica, 0) AS replica, stage, node
            FROM stage_work WHERE stage IS NOT NULL),
        missing AS (
            SELECT DISTINCT job, replica, stage, rank, node FROM seats
            JOIN hang_roots r USING (job, rank) WHERE r.how <> 'together')
    """


def _hanging_transfers() -> str:
    """Transfers that hang with both ends in them, where no stage of a pipeline computes."""
    return """
        expected AS (
            SELECT *, NOT bool_or(computes) OVER one AND (stands_forward OR stands_backward)
                    AS network,
                CASE WHEN stands_forward THEN 1 ELSE -1 END AS way
            FROM judged WINDOW one AS (PARTITION BY job, replica)),
        senders AS (
            SELECT job, replica, stage, split_part(task, '_', 1) AS task, rank, node, micro_batch,
                chunk, peer, started_ns, tensor_rank
            FROM calls WHERE open AND task IN ('forward_send', 'backward_send')),
        receivers AS (
            SELECT job, replica, stage, split_part(task, '_', 1) AS task, rank, tensor_rank,
                started_ns
            FROM calls WHERE open AND task IN ('forward_recv', 'backward_recv')),
        pairs AS (
            SELECT t.job, t.replica, t.stage, s.task, s.rank, s.node, s.micro_batch, s.chunk,
                r.rank AS peer, r.stage AS peer_stage,
                greatest(s.started_ns, r.started_ns) AS since_ns
            FROM expected t JOIN senders s USING (job, replica, stage)
            JOIN receivers r ON r.job = t.job AND r.replica = t.replica
                AND r.stage = (t.stage + way + pp) % pp AND r.task = s.task
                AND r.tensor_rank IS NOT DISTINCT FROM s.tensor_rank
            WHERE network AND s.task = CASE way WHEN 1 THEN 'forward' ELSE 'backward' END
            QUALIFY row_number() OVER (PARTITION BY t.job, t.replica, t.stage
                ORDER BY greatest(s.started_ns, r.started_ns), s.rank, s.chunk, s.micro_batch) = 1)
    """


def _silence() -> str:
    """Since when no task has begun or ended, and what an iteration takes."""
    return """
        activity AS (
            SELECT job, max(greatest(started_ns, ended_ns)) AS last_ns FROM work GROUP BY job),
        observed AS (SELECT job, max(observed_ns) AS now_ns FROM operations GROUP BY job),
        baseline AS (SELECT job, median(coalesce(baseline_ns, duration_ns)) AS baseline_ns
            FROM training_iterations GROUP BY job)
    """


@relation(
    "incomplete_stages",
    reads=["stage_work", "training_iterations"],
    empty_without=["stage_work"],
    columns=[
        "job",
        ("iteration", "BIGINT", "", "the iteration that does not complete"),
        "replica stage chunk",
        ("micro_batch", "INTEGER", "", "micro-batch of the task; NULL: none is known"),
        ("task", "VARCHAR", "", "the stage's first task that has not ended"),
        ("rank", "INTEGER", "", "the one of its ranks that is behind, or that sends"),
        "node",
        ("peer", "INTEGER", "", "the other end of a transfer that hangs"),
        ("peer_stage", "INTEGER", "", "its stage"),
        ("waits_in", "VARCHAR", "", "Recv from a stage, Send to a stage, its own computation"),
        ("since_ns", "BIGINT", "ns", "since when, common time"),
        ("silent_ns", "BIGINT", "ns", "for how long no task of the job has begun or ended"),
        ("baseline_ns", "DOUBLE", "ns", "what an iteration takes"),
        ("missing_calls", "INTEGER", "calls", "calls that its rank is behind its parallel group"),
        ("members", "INTEGER", "ranks", "ranks of the stage with data"),
        ("network", "BOOLEAN", "", "both ends of the transfer are in it"),
        ("first", "BOOLEAN", "", "the hang began here"),
    ],
    source="VenusTrace 3.3, Algorithm 1, Fig. 15",
)
def incomplete_stages() -> str:
    """Every stage of a pipeline whose newest iteration does not end, and which was the first."""
    return f"""
        WITH {_newest_iteration()}, {_pending_tasks()}, {_waiting_stages()}, {_ranks_behind()},
            {_hanging_transfers()}, {_silence()}
        SELECT t.job, coalesce(t.iteration, h.iteration) AS iteration, t.replica, t.stage,
            coalesce(x.chunk, t.chunk) AS chunk,
            coalesce(x.micro_batch, t.micro_batch) AS micro_batch,
            coalesce(x.task, t.task) AS task, coalesce(x.rank, m.rank,
                CASE WHEN t.missing_calls > 0 OR t.members = 1 THEN t.rank END) AS rank,
            coalesce(x.node, m.node, t.node) AS node, x.peer, x.peer_stage,
            CASE WHEN x.peer IS NOT NULL THEN 'Send to stage ' || x.peer_stage
                WHEN takes_forward THEN 'Recv from stage ' || (t.stage + pp - 1) % pp
                WHEN takes_backward THEN 'Recv from stage ' || (t.stage + 1) % pp
                WHEN gives_forward THEN 'Send to stage ' || (t.stage + 1) % pp
                WHEN gives_backward THEN 'Send to stage ' || (t.stage + pp - 1) % pp
                WHEN t.since_ns IS NOT NULL THEN 'its own computation' END AS waits_in,
            coalesce(x.since_ns, t.since_ns) AS since_ns, now_ns - last_ns AS silent_ns,
            u.baseline_ns, t.missing_calls, t.members,
            x.peer IS NOT NULL AS network,
            CASE WHEN bool_or(computes AND m.rank IS NOT NULL) OVER every
                    THEN computes AND m.rank IS NOT NULL
                WHEN bool_or(x.peer IS NOT NULL) OVER every THEN x.peer IS NOT NULL
                WHEN bool_or(computes AND awaited) OVER every THEN computes AND awaited
                ELSE computes END
                -- If all members are blocked in one operation, its transfers show the culprit.
                AND (x.rank IS NOT NULL OR m.rank IS NOT NULL OR t.missing_calls > 0
                    OR t.job NOT IN (SELECT job FROM hang_roots WHERE how = 'together')) AS first
        FROM expected t JOIN (SELECT job, iteration FROM shape) h USING (job)
        LEFT JOIN pairs x USING (job, replica, stage)
        LEFT JOIN missing m ON m.job = t.job AND m.replica = t.replica AND m.stage = t.stage
            AND NOT network
        LEFT JOIN activity USING (job) LEFT JOIN observed USING (job)
        LEFT JOIN baseline u USING (job)
        WHERE waiting OR computes
        WINDOW every AS (PARTITION BY t.job)
    """


@relation(
    "stopped_stages",
    reads=["stage_suspects", "incomplete_stages", "stage_work"],
    empty_without=["stage_suspects", "incomplete_stages"],
    columns=[
        "job iteration replica stage chunk micro_batch task",
        ("rank", "INTEGER", "", "the rank that others wait for, or that sends; NULL: unknown"),
        "node peer waits_in since_ns silent_ns",
        ("missing_calls", "INTEGER", "calls", "calls that its rank never made"),
        "network",
    ],
    source="VenusTrace 3.3, Algorithm 1",
    params={
        "iterations_silent": Param(
            2,
            "times the baseline of an iteration without any task that begins or ends: no slowness "
            "(VenusTrace 3.3, n)",
        ),
        "hang_after": "halted.hang_after",
    },
)
def stopped_stages() -> str:
    """Where each pipelined job stopped that has been silent for too long."""
    return """
        WITH pipelined AS (
            SELECT job FROM stage_work GROUP BY job HAVING count(DISTINCT stage) > 1)
        SELECT s.* FROM incomplete_stages s SEMI JOIN pipelined USING (job)
        -- Tasks labelled on another stage than their rank's communicators show are no place.
        LEFT JOIN task_layout l USING (job, rank)
        WHERE s.first AND coalesce(l.stage = s.stage, true)
            -- Where chains of waiting end at ranks, those of other stages are their victims.
            AND EXISTS (FROM stage_suspects c WHERE c.job = s.job AND c.stopped
                AND coalesce(c.rank = s.rank, c.rank IS NULL))
            AND silent_ns >= $hang_after
            AND silent_ns > $iterations_silent * coalesce(baseline_ns, 0)
    """
