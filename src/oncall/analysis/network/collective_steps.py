"""The steps of collectives' flows, from every recorder.

Host agents and simulators record each step. Our own collectors record what a rank sent to a peer in
an operation: of a ring's or tree's pipeline that is one long step, which waits for no other and
should take what the same message took at its best. Where epochs of all its flows are there, a
ring's steps are found in them. Both are looked at only where switches report more.
"""

from __future__ import annotations

from oncall.evidence import Param, relation


def _ring_steps() -> str:
    """Each step of each ring's flow that was measured in epochs and went round once.

    Every rank of a ring sends as much in each step, one step after the other. So where the bytes of
    an operation cross the k-th share of its volume, step k is over. A collective that is larger
    than the buffers goes round several times, and its rounds overlap: it is left out, as is one
    whose ranks share hosts, where steps are passed on out of sight.
    """
    return """
        apart AS (
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
        counted AS (
            SELECT c.*, e.start_ns, sum(e.bytes)::BIGINT AS here
            FROM calls c JOIN flows_ f ON f.job = c.job AND f.rank = c.rank AND f.comm = c.comm
                AND coalesce(f.peer = c.peer, true)
            JOIN flow_epochs e ON e.flow = f.flow
                AND e.start_ns >= c.started_ns AND e.start_ns < c.ended_ns
            GROUP BY ALL),
        summed AS (
            SELECT *, sum(here) OVER (w ORDER BY start_ns) AS after, sum(here) OVER w AS total
            FROM counted WINDOW w AS (PARTITION BY job, comm, seq, rank, peer)),
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
                AND e.rank = s.rank AND e.peer = s.peer AND s.first_byte + s.slack < e.after),
        ring_steps AS MATERIALIZED (
            SELECT s.job, s.comm, s.seq, s.rank AS src, s.peer AS dst, s.step,
                (s.bytes / s.steps)::BIGINT AS bytes, s.started_ns,
                -- Where one step follows the other at once, it must not begin before that ends.
                e.start_ns + floor(e.epoch_ns * least(1,
                    (s.last_byte - (e.after - e.here)) / e.here))::BIGINT AS ended_ns, s.epoch_ns
            FROM begun s ASOF JOIN whole e ON e.job = s.job AND e.comm = s.comm AND e.seq = s.seq
                AND e.rank = s.rank AND e.peer = s.peer AND s.last_byte - s.slack <= e.after)
    """


@relation(
    "collective_steps",
    reads=["flow_steps|op_traffic", "flow_steps|switch_ports|switch_pauses|nics"],
    columns=[
        "job comm",
        ("seq", "BIGINT", "", "the collective"),
        ("flow", "BIGINT", "", "the flow; of a rank's traffic whose flow is not known: NULL"),
        "src dst step bytes started_ns",
        ("ended_ns", "BIGINT", "ns", "last byte; NULL: not complete"),
        "waits_for_flow",
        ("expected_ns", "DOUBLE", "ns", "its time undisturbed"),
        ("traced", "BOOLEAN", "", "recorded by the sender; false: found in a rank's traffic"),
        ("within_ns", "BIGINT", "ns", "the error of its times"),
    ],
    source="Vedrfolnir III-B, III-C1; Pulse 5",
    params={
        "best": Param("10 %", "quantile: undisturbed, yet not the single best"),
        "most_step": Param(
            "2 MiB",
            "of a channel: half of its buffer of 4 MiB, which it passes on at once (NCCL's SIMPLE "
            "protocol); a collective with a larger step goes round again",
        ),
        "counted": "lost_time.nearly_all",
        "slack": Param(
            "2 %",
            "of the step's bytes: headers, and what is sent again, put its ends a little off its "
            "share",
        ),
        "slack_bytes": Param("128 KiB", "at most: less than a switch accepts before it pauses"),
        "epochs_a_step": Param(3, "at least; else begin and end are lost in the epochs' length"),
    },
)
def collective_steps() -> str:
    """Each step of each collective; what hosts traced goes before what their traffic shows."""
    return f"""
        WITH {_ring_steps()},
        clock AS (
            SELECT DISTINCT ON (node) node, offset_ns FROM clocks
            ORDER BY node, at_ns DESC, offset_ns),
        named AS (
            SELECT src_host, dst_host, any_value(flow) AS flow FROM flows
            WHERE is_collective GROUP BY ALL),
        sent AS (
            SELECT t.*, a.node AS src_node, b.node AS dst_node,
                quantile_disc(t.ended_ns - t.started_ns, $best)
                    OVER (PARTITION BY t.job, t.comm, t.rank, t.peer, t.bytes) AS best_ns
            FROM op_traffic t
            LEFT JOIN processes a ON a.job = t.job AND a.rank = t.rank
            LEFT JOIN processes b ON b.job = t.job AND b.rank = t.peer
            WHERE t.kind = 'coll' AND t.peer IS NOT NULL
                AND NOT EXISTS (FROM flow_steps)
                AND (EXISTS (FROM switch_ports) OR EXISTS (FROM switch_pauses)
                    OR (t.job, t.comm, t.seq) IN (SELECT (job, comm, seq) FROM ring_steps))
                -- Within a host nothing passes a switch.
                AND a.node IS DISTINCT FROM b.node),
        -- Part of a collective's steps beside the whole of others would wait for nobody.
        inside AS (
            SELECT s.job, s.comm, s.seq FROM sent s
            LEFT JOIN (SELECT DISTINCT job, comm, seq, src, dst FROM ring_steps) n
                ON n.job = s.job AND n.comm = s.comm AND n.seq = s.seq
                AND n.src = s.rank AND n.dst = s.peer
            GROUP BY ALL HAVING count(n.src) = count(*)),
        -- Links of a ring are alike; one that is slow from the beginning has no better past.
        alone AS (
            SELECT *, quantile_disc(ended_ns - started_ns, $best)
                OVER (PARTITION BY job, comm, bytes) AS best_ns
            FROM ring_steps SEMI JOIN inside USING (job, comm, seq))
        SELECT job, comm, seq, flow, src, dst, step, bytes, started_ns, ended_ns, waits_for_flow,
            expected_ns, true AS traced, 0 AS within_ns
        FROM flow_steps WHERE started_ns IS NOT NULL AND step IS NOT NULL
        UNION ALL
        SELECT s.job, s.comm, s.seq, n.flow, s.rank, s.peer, 1, s.bytes, s.started_ns, s.ended_ns,
            NULL, s.best_ns, false, coalesce(s.epoch_ns, 0)
        FROM sent s ANTI JOIN inside USING (job, comm, seq)
        LEFT JOIN named n ON n.src_host = s.src_node AND n.dst_host = s.dst_node
        WHERE s.started_ns IS NOT NULL
            AND (EXISTS (FROM switch_ports) OR EXISTS (FROM switch_pauses))
        UNION ALL
        SELECT s.job, s.comm, s.seq, n.flow, s.src, s.dst, s.step, s.bytes,
            s.started_ns - coalesce(c.offset_ns, 0), s.ended_ns - coalesce(c.offset_ns, 0), NULL,
            s.best_ns, false, s.epoch_ns
        FROM alone s LEFT JOIN processes a ON a.job = s.job AND a.rank = s.src
        LEFT JOIN processes b ON b.job = s.job AND b.rank = s.dst
        LEFT JOIN clock c ON c.node = a.node
        LEFT JOIN named n ON n.src_host = a.node AND n.dst_host = b.node
    """
