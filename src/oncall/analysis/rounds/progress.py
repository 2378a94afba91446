"""How far each rank has come on each communicator: the frontier that hangs are read from; and
processes that are gone: they wait for no other, whatever they have in flight.

No operation can complete on some rank while another member never called it. Either that member's
dump is older, or they failed: where a process ends, its peers' calls end with an error, which a
recorder takes for completion. If a rank called something after such an operation, it had succeeded;
if that member's last call had not ended, its dump is older. Else both are possible.
"""

from __future__ import annotations

from oncall.evidence import Param, relation


@relation(
    "halted",
    reads=["launches"],
    columns=[
        "job",
        ("rank", "INTEGER", "", "a rank whose process no longer runs"),
        ("state", "VARCHAR", "", "dead or stopped"),
    ],
    source="CCL-D 2.2: a rank that is gone is one that does not enter",
    params={
        "hang_after": Param(
            "5 min",
            "longer than the longest legal operation, a checkpoint; 97 % of longer waits never "
            "end (CCL-D 6.1)",
        ),
    },
)
def halted() -> str:
    """Ranks that the newest look found dead or stopped, and running on no communicator.

    A process that died after a long wait was ended because of a hang, by a watchdog or a person:
    what it waited for is the cause still, and it is not among them.
    """
    return """
        WITH newest AS (
            SELECT * FROM launches WHERE rank IS NOT NULL
            QUALIFY coalesce(at_ns, 0) = max(coalesce(at_ns, 0)) OVER (PARTITION BY job, rank)),
        ended AS (
            SELECT job, rank, min(state) FILTER (state IN ('dead', 'stopped')) AS state
            FROM newest GROUP BY job, rank
            HAVING bool_or(state IN ('dead', 'stopped'))
                AND NOT coalesce(bool_or(state IN ('running', 'init')), false))
        SELECT * FROM ended e WHERE state = 'stopped' OR NOT EXISTS (
            FROM in_flight i WHERE i.job = e.job AND i.rank = e.rank
                AND coalesce(i.waited_ns >= $hang_after, true))
    """


@relation(
    "last_acts",
    reads=["launches"],
    columns=[
        "job",
        ("rank", "INTEGER", "", "a rank that is known to run, or to have run"),
        ("act_ns", "BIGINT", "ns", "when it last began or ended an operation; NULL: not recorded"),
    ],
    source="CCL-D 2.2: a rank that is gone is one that does not enter",
)
def last_acts() -> str:
    """Of each rank with a recorded process, the newest call or completion."""
    return """
        WITH acts AS (
            SELECT job, rank, max(greatest(enqueued_ns, started_ns, ended_ns)) AS act_ns
            FROM ops GROUP BY job, rank)
        SELECT l.job, l.rank, any_value(a.act_ns) AS act_ns
        FROM launches l LEFT JOIN acts a USING (job, rank)
        WHERE l.rank IS NOT NULL GROUP BY l.job, l.rank
    """


@relation(
    "frontier",
    reads=["members", "ops|launches"],
    columns=[
        "job comm rank",
        ("entered_seq", "BIGINT", "", "last collective the rank entered; NULL: none observed"),
        ("done_seq", "BIGINT", "", "last collective known to have completed on it"),
    ],
    source="CCL-D 4.2.2, 5.1 (operation counter)",
)
def frontier() -> str:
    """The operation counter of every member, collectives only.

    A rank's own launch counter (pg_status, RAS) is used where the recording keeps no operation of
    it, but only on communicators where the counter agrees with the operations that are kept:
    some sources let it count Send and Recv too. A board counts as the hook numbers operations, and
    goes on where the ring dropped them: it is always believed. So is a transfer: who moves data of
    an operation has entered it.
    """
    return """
        WITH open AS (
            SELECT job, comm, rank, min(seq) - 1 AS before
            FROM in_flight WHERE kind = 'coll' GROUP BY job, comm, rank),
        counted AS (
            SELECT job, comm, rank, arg_max(launched, (coalesce(at_ns, 0), launched)) AS launched,
                arg_max(completed, (coalesce(at_ns, 0), completed)) AS completed
            FROM launches WHERE source IS DISTINCT FROM 'board' GROUP BY job, comm, rank),
        boards AS (
            SELECT job, comm, rank, max(launched) AS launched, max(completed) AS completed
            FROM launches WHERE source = 'board' GROUP BY job, comm, rank),
        moved AS (
            SELECT job, comm, rank, max(seq) AS seq FROM transfers
            WHERE kind = 'coll' GROUP BY job, comm, rank),
        trusted AS (
            SELECT job, comm FROM counted LEFT JOIN heads USING (job, comm, rank)
            GROUP BY job, comm
            HAVING NOT coalesce(bool_or(p2p), false)
                AND coalesce(bool_and(launched = entered_seq) FILTER (entered_seq IS NOT NULL),
                    true))
        SELECT m.job, m.comm, m.rank,
            greatest(coalesce(h.entered_seq, CASE WHEN t.comm IS NOT NULL THEN c.launched END),
                nullif(b.launched, 0), x.seq) AS entered_seq,
            -- Collectives of one communicator complete in order: all before the first open one are.
            greatest(h.done_seq, o.before, CASE WHEN t.comm IS NOT NULL THEN c.completed END,
                nullif(b.completed, 0)) AS done_seq
        FROM members m
        LEFT JOIN heads h USING (job, comm, rank)
        LEFT JOIN open o USING (job, comm, rank)
        LEFT JOIN counted c USING (job, comm, rank)
        LEFT JOIN boards b USING (job, comm, rank)
        LEFT JOIN moved x USING (job, comm, rank)
        LEFT JOIN trusted t ON t.job = m.job AND t.comm = m.comm
    """


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
                n.called_ns > d.called_ns
                    OR d.seq > coalesce(f.done_seq, f.entered_seq) + 1 AS went_on
            FROM done d JOIN frontier f ON f.job = d.job AND f.comm = d.comm
                AND f.entered_seq < d.seq
            SEMI JOIN recordings r ON r.job = f.job AND r.rank = f.rank
                AND r.kind = 'flight_recorder' AND r.problem IS NULL
            JOIN newest n ON n.job = d.job AND n.rank = d.rank)
        SELECT job, rank, list(DISTINCT ended ORDER BY ended) AS ended FROM uncalled
        ANTI JOIN (FROM uncalled WHERE coalesce(went_on, true)) USING (job)
        GROUP BY job, rank
    """
