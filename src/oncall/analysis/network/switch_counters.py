"""What switches' ports counted around a late collective, if the counters of their shells are all
there is.

A switch that pauses others and is not paused itself is where the pauses begin: it has the queue,
and of its queues the deepest counts. Counters are read seldom, so this works for lasting causes
only.
"""

from __future__ import annotations

from oncall.evidence import relation


@relation(
    "switch_counters",
    reads=["late_ends"],
    optional=["nic_rates", "nic_priorities", "ranks"],
    empty_without=["late_ends", "nic_rates"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("comm", "UBIGINT", "", "communicator"),
        ("seq", "BIGINT", "", "the collective"),
        ("switch", "VARCHAR", "", "the switch"),
        ("port", "VARCHAR", "", "its port, by the switch's name"),
        ("received", "HUGEINT", "frames", "pauses received: it was paused; NULL: not counted"),
        ("sent", "HUGEINT", "frames", "pauses sent: it stopped the port's other end"),
        (
            "queue_bytes",
            "BIGINT",
            "bytes",
            "deepest queue since the counter was cleared; NULL: not reported",
        ),
    ],
    source="Vedrfolnir III-D1: e(p, p); SONiC `show pfc counters`, `show queue watermark`",
)
def switch_counters() -> str:
    """Ports of switches, with their pauses between the readings around each late collective."""
    return """
        WITH spans AS (
            SELECT job, comm, seq, min(started_ns) AS started_ns,
                max(started_ns + exec_ns) AS ended_ns
            FROM late_ends WHERE side <> 'elsewhere' GROUP BY ALL),
        queues AS (
            SELECT node, nic, at_ns, max(queue_bytes) AS queue_bytes FROM nic_priorities
            WHERE queue_bytes IS NOT NULL GROUP BY ALL)
        SELECT s.job, s.comm, s.seq, r.node AS switch, r.nic AS port,
            sum(r.pfc_rx_pause) AS received, sum(r.pfc_tx_pause) AS sent,
            any_value(q.queue_bytes) AS queue_bytes
        -- A switch's shell counts no bytes beside its pauses, a NIC always does.
        FROM spans s JOIN nic_rates r ON r.tx_bytes IS NULL
            AND r.at_ns > s.started_ns AND r.since_ns < s.ended_ns
        ANTI JOIN ranks h ON h.node = r.node
        LEFT JOIN (
            SELECT node, nic, s.job, s.comm, s.seq, max(queue_bytes) AS queue_bytes
            FROM queues JOIN spans s ON queues.at_ns > s.started_ns GROUP BY ALL) q
            ON q.node = r.node AND q.nic = r.nic AND q.job = s.job AND q.comm = s.comm
                AND q.seq = s.seq
        GROUP BY s.job, s.comm, s.seq, r.node, r.nic
    """
