"""Whether a host's proxy threads notice completions late: a short CPU, seen from within.

A read that flushes a GPU's memory never leaves its host and takes microseconds; a write that the
NIC has sent is completed soon after. Both last until the thread looks again. So waits of a host's
own transfers name that host, where gaps name only its whole group (Pulse 8.1).
"""

from __future__ import annotations

from oncall.evidence import relation


@relation(
    "proxy_waits",
    reads=["op_traffic|epochs"],
    optional=["transfers", "members"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("node", "VARCHAR", "", "host"),
        ("flush_ns", "DOUBLE", "ns", "a step's wait for its flush; NULL: nothing is flushed"),
        ("others_flush_ns", "DOUBLE", "ns", "... on the other hosts"),
        ("sent_times", "DOUBLE", "ratio", "a step's wait for its completion, against its group's"),
    ],
    source="beyond Pulse 7.2.2: NCCL's proxy steps",
)
def proxy_waits() -> str:
    """What steps of collectives wait for within each host, in the second half of the recording."""
    return """
        WITH span AS (SELECT (min(ended_ns) + max(ended_ns)) // 2 AS middle_ns FROM transfers),
        each AS (
            SELECT t.job, t.comm, t.rank, any_value(m.node) AS node,
                sum(peer_wait_ns) FILTER (direction = 'recv')
                    / nullif(sum(steps_done) FILTER (direction = 'recv'), 0) AS flush_ns,
                sum(wire_wait_ns) FILTER (direction = 'send')
                    / nullif(sum(steps_done) FILTER (direction = 'send'), 0) AS sent_ns
            FROM transfers t JOIN members m USING (job, comm, rank), span
            WHERE t.kind = 'coll' AND t.ended_ns >= middle_ns GROUP BY ALL),
        compared AS (
            SELECT *, sent_ns / median(sent_ns) OVER (PARTITION BY job, comm
                ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING EXCLUDE CURRENT ROW)
                AS sent_times
            FROM each),
        hosts_ AS (
            SELECT job, node, nullif(avg(flush_ns), 0) AS flush_ns,
                median(sent_times) AS sent_times
            FROM compared WHERE node IS NOT NULL GROUP BY ALL)
        SELECT job, node, flush_ns, median(flush_ns) OVER (PARTITION BY job
                ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING EXCLUDE CURRENT ROW)
                AS others_flush_ns, sent_times
        FROM hosts_
    """


@relation(
    "credit_waits",
    reads=["op_traffic|epochs"],
    optional=["transfers"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("comm", "UBIGINT", "", "communicator"),
        ("rank", "INTEGER", "", "a sender"),
        ("room_ns", "HUGEINT", "ns", "its steps waited for room in the receiver's buffers"),
        ("wire_ns", "HUGEINT", "ns", "its steps were on the wire"),
    ],
    source="beyond Pulse 6.2: NCCL's proxy steps",
)
def credit_waits() -> str:
    """What holds up a sender's steps in collectives: the wire, or a receiver that takes nothing.
    The latter spreads the sender's epochs over a longer time, none of which is the sender's fault.
    """
    return """
        SELECT job, comm, rank, sum(peer_wait_ns) AS room_ns, sum(wire_wait_ns) AS wire_ns
        FROM transfers WHERE direction = 'send' AND kind = 'coll' AND ended_ns IS NOT NULL
        GROUP BY job, comm, rank
        HAVING sum(peer_wait_ns) IS NOT NULL AND sum(wire_wait_ns) IS NOT NULL
    """
