"""The steps inside a ring's collective, as one node's own traffic shows them.

Every rank of a ring sends as much in each step, one step after the other (Vedrfolnir III-B). So
where the bytes of an operation cross the k-th share of its volume, step k is over. A collective
that is larger than the buffers goes round several times, and its rounds overlap: it is left out,
as is one whose ranks share hosts, where steps are passed on out of sight.
"""

from __future__ import annotations

from oncall.evidence import Param, relation


@relation(
    "node_flow_steps",
    reads=["op_traffic", "epochs", "ops"],
    optional=["members", "flow_ends", "flow_comms", "flow_epochs"],
    empty_without=["members", "flow_ends", "flow_comms", "flow_epochs"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("comm", "UBIGINT", "", "communicator"),
        ("seq", "BIGINT", "", "the collective"),
        ("src", "INTEGER", "", "sending rank"),
        ("dst", "INTEGER", "", "receiving rank"),
        ("step", "INTEGER", "", "step of the ring, from 1"),
        ("bytes", "BIGINT", "bytes", "sent in the step"),
        ("started_ns", "BIGINT", "ns", "first byte, to an epoch"),
        ("ended_ns", "BIGINT", "ns", "last byte, to an epoch"),
        ("epoch_ns", "BIGINT", "ns", "length of the epochs"),
    ],
    source="Vedrfolnir III-B, III-C1; Pulse 5.2",
    params={
        "most_step": Param(
            "2 MiB",
            "of a channel: half of its buffer of 4 MiB, which it passes on at once (NCCL's SIMPLE "
            "protocol); a collective with a larger step goes round more than once",
        ),
        "counted": Param(
            "90 %", "of the volume found in its epochs; otherwise missing data shifts all steps"
        ),
        "slack": Param(
            "2 %",
            "of the step's bytes: headers, and what is sent again, put its ends a little off its "
            "share",
        ),
        "slack_bytes": Param(
            "128 KiB", "at most: less than a switch accepts from a sender before it pauses it"
        ),
        "epochs_a_step": Param(
            3, "at least; otherwise begin and end are lost in the epochs' length"
        ),
    },
)
def node_flow_steps() -> str:
    """Each step of each ring's flow that was measured in epochs and went round once."""
    return """
        WITH apart AS (
            SELECT job, comm, max(size) AS size FROM members
            GROUP BY ALL HAVING count(DISTINCT node) = count(*) AND count(*) > 1),
        collectives AS (
            SELECT job, comm, seq, rank, any_value(channels) AS channels FROM ops
            WHERE kind = 'coll' AND coalesce(proto, 'SIMPLE') = 'SIMPLE' GROUP BY ALL),
        calls AS (
            SELECT t.job, t.comm, t.seq, t.rank, t.peer, t.bytes, t.started_ns, t.ended_ns,
                t.epoch_ns, CASE t.op WHEN 'AllReduce' THEN 2 ELSE 1 END * (size - 1) AS steps
            FROM op_traffic t JOIN apart USING (job, comm) JOIN collectives o
                USING (job, comm, seq, rank)
            WHERE t.kind = 'coll' AND t.algo = 'RING' AND t.peer IS NOT NULL
                AND t.op IN ('AllReduce', 'AllGather', 'ReduceScatter')
                AND t.ended_ns IS NOT NULL AND NOT coalesce(t.undercount, false)
                AND t.bytes <= $most_step * o.channels * steps
                AND t.ended_ns - t.started_ns >= $epochs_a_step * t.epoch_ns * steps),
        -- What a proxy tells is spread evenly over a transfer: no step is seen in it.
        flows_ AS (
            SELECT e.flow, e.job, e.rank, c.comm, e.peer FROM flow_ends e JOIN flow_comms c
                USING (flow) WHERE e.source <> 'proxy'),
        sent AS (
            SELECT c.*, e.start_ns, sum(e.bytes)::BIGINT AS here
            FROM calls c JOIN flows_ f ON f.job = c.job AND f.rank = c.rank AND f.comm = c.comm
                AND coalesce(f.peer = c.peer, true)
            JOIN flow_epochs e ON e.flow = f.flow
                AND e.start_ns >= c.started_ns AND e.start_ns < c.ended_ns
            GROUP BY ALL),
        summed AS (
            SELECT *, sum(here) OVER (w ORDER BY start_ns) AS after, sum(here) OVER w AS total
            FROM sent WINDOW w AS (PARTITION BY job, comm, seq, rank, peer)),
        whole AS (FROM summed WHERE total >= $counted * bytes),
        edges AS (
            SELECT DISTINCT job, comm, seq, rank, peer, steps, total, bytes, epoch_ns,
                unnest(range(1, steps + 1)) AS step,
            FROM whole),
        ends AS (
            SELECT *, (step - 1) * total / steps AS first_byte, step * total / steps AS last_byte,
                least($slack_bytes, $slack * total / steps) AS slack
            FROM edges),
        begun AS (
            SELECT s.*, e.start_ns + ceil(e.epoch_ns * greatest(0, s.first_byte
                - (e.after - e.here)) / e.here)::BIGINT AS started_ns
            FROM ends s ASOF JOIN whole e ON e.job = s.job AND e.comm = s.comm AND e.seq = s.seq
                AND e.rank = s.rank AND e.peer = s.peer AND s.first_byte + s.slack < e.after)
        SELECT s.job, s.comm, s.seq, s.rank AS src, s.peer AS dst, s.step,
            (s.bytes / s.steps)::BIGINT AS bytes, s.started_ns,
            -- Where one step follows the other at once, it must not begin before that ends.
            e.start_ns + floor(e.epoch_ns * least(1, (s.last_byte - (e.after - e.here)) / e.here)
                )::BIGINT AS ended_ns, s.epoch_ns
        FROM begun s ASOF JOIN whole e ON e.job = s.job AND e.comm = s.comm AND e.seq = s.seq
            AND e.rank = s.rank AND e.peer = s.peer AND s.last_byte - s.slack <= e.after
    """
