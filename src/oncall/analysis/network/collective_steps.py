"""The steps of collectives' flows, from every recorder. Host

agents and simulators record each step. Our own collectors record what a rank sent to a peer in an
operation: of a ring's or tree's pipeline that is one long step, which waits for no other and should
take what the same message took at its best. Where epochs of all its flows are there, a ring's steps
are found in them. Both are looked at only where switches report more.
"""

from __future__ import annotations

from oncall.evidence import Param, relation


@relation(
    "collective_steps",
    reads=["flow_steps|op_traffic", "flow_steps|switch_ports|switch_pauses|nics"],
    optional=["ranks", "flows", "node_flow_steps", "clocks"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("comm", "UBIGINT", "", "communicator"),
        ("seq", "BIGINT", "", "the collective"),
        ("flow", "BIGINT", "", "the flow; of a rank's traffic whose flow is not known: NULL"),
        ("src", "INTEGER", "", "sending rank"),
        ("dst", "INTEGER", "", "receiving rank"),
        ("step", "INTEGER", "", "step of the algorithm"),
        ("bytes", "BIGINT", "bytes", "bytes of the step"),
        ("started_ns", "BIGINT", "ns", "first byte"),
        ("ended_ns", "BIGINT", "ns", "last byte; NULL: not complete"),
        ("waits_for_flow", "BIGINT", "", "the flow whose step must end before, where recorded"),
        ("expected_ns", "DOUBLE", "ns", "its time undisturbed"),
        ("traced", "BOOLEAN", "", "recorded by the sender; false: found in a rank's traffic"),
        ("within_ns", "BIGINT", "ns", "the error of its times"),
    ],
    source="Vedrfolnir III-B, III-C1; Pulse 5",
    params={
        "best": Param("10 %", "quantile: undisturbed, yet not the single best"),
    },
)
def collective_steps() -> str:
    """Each step of each collective; what hosts traced goes before what their traffic shows."""
    return """
        WITH homes AS (SELECT job, rank, any_value(node) AS node FROM ranks GROUP BY ALL),
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
            LEFT JOIN homes a ON a.job = t.job AND a.rank = t.rank
            LEFT JOIN homes b ON b.job = t.job AND b.rank = t.peer
            WHERE t.kind = 'coll' AND t.peer IS NOT NULL
                AND NOT EXISTS (FROM flow_steps)
                AND (EXISTS (FROM switch_ports) OR EXISTS (FROM switch_pauses)
                    OR (t.job, t.comm, t.seq) IN (SELECT (job, comm, seq) FROM node_flow_steps))
                -- Within a host nothing passes a switch.
                AND a.node IS DISTINCT FROM b.node),
        -- Part of a collective's steps beside the whole of others would wait for nobody.
        inside AS (
            SELECT s.job, s.comm, s.seq FROM sent s
            LEFT JOIN (SELECT DISTINCT job, comm, seq, src, dst FROM node_flow_steps) n
                ON n.job = s.job AND n.comm = s.comm AND n.seq = s.seq
                AND n.src = s.rank AND n.dst = s.peer
            GROUP BY ALL HAVING count(n.src) = count(*)),
        -- Links of a ring are alike; one that is slow from the beginning has no better past.
        alone AS (
            SELECT *, quantile_disc(ended_ns - started_ns, $best)
                OVER (PARTITION BY job, comm, bytes) AS best_ns
            FROM node_flow_steps SEMI JOIN inside USING (job, comm, seq))
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
        FROM alone s LEFT JOIN homes a ON a.job = s.job AND a.rank = s.src
        LEFT JOIN homes b ON b.job = s.job AND b.rank = s.dst
        LEFT JOIN clock c ON c.node = a.node
        LEFT JOIN named n ON n.src_host = a.node AND n.dst_host = b.node
    """
