"""The steps that made a collective late: the steps that the network analysis starts from."""

from __future__ import annotations

from oncall.evidence import Param, relation


@relation(
    "late_steps",
    reads=["step_waits"],
    optional=["ranks", "flows"],
    columns=[
        ("id", "INTEGER", "", "number of the step among these"),
        ("job", "VARCHAR", "", "the job"),
        ("comm", "UBIGINT", "", "communicator"),
        ("seq", "BIGINT", "", "the collective"),
        ("flow", "BIGINT", "", "its flow"),
        ("src", "INTEGER", "", "sending rank"),
        ("dst", "INTEGER", "", "receiving rank"),
        ("step", "INTEGER", "", "step of the algorithm"),
        ("started_ns", "BIGINT", "ns", "first byte"),
        ("ended_ns", "BIGINT", "ns", "last byte"),
        ("excess_ns", "DOUBLE", "ns", "its excess time"),
        ("critical", "BOOLEAN", "", "on the longest path"),
        ("over", "BOOLEAN", "", "it has ended"),
        ("src_host", "VARCHAR", "", "host of the sender, as the topology calls it"),
        ("dst_host", "VARCHAR", "", "host of the receiver"),
        ("traced", "BOOLEAN", "", "recorded by the sender; false: found in a rank's traffic"),
        ("bytes", "BIGINT", "bytes", "bytes of the step"),
    ],
    source="Vedrfolnir III-D1",
    params={
        "most_steps": Param(
            200,
            "late steps of a collective that are followed, those of the critical path first, "
            "then the worst: others show nothing new",
        ),
        "most_collectives": Param(
            32, "collectives of a communicator that are followed, those that lost most"
        ),
    },
)
def late_steps() -> str:
    """The late steps of each communicator's worst collectives that are late by them."""
    return """
        WITH homes AS (SELECT job, rank, any_value(node) AS node FROM ranks GROUP BY ALL),
        named AS (
            SELECT flow, any_value(src_host) AS src_host, any_value(dst_host) AS dst_host
            FROM flows GROUP BY flow),
        ranked AS (
            SELECT w.*, row_number() OVER (PARTITION BY job, comm, seq
                ORDER BY critical DESC, over, excess_ns DESC NULLS LAST, src, step) AS worst
            FROM step_waits w WHERE late),
        followed AS (
            SELECT job, comm, seq FROM ranked WHERE critical GROUP BY job, comm, seq
            QUALIFY row_number() OVER (PARTITION BY job, comm
                ORDER BY sum(greatest(excess_ns, 0)) DESC NULLS LAST, seq) <= $most_collectives)
        SELECT row_number() OVER (ORDER BY w.job, comm, seq, worst) AS id, w.job, comm, seq, flow,
            src, dst, step, started_ns, ended_ns,
            greatest(coalesce(excess_ns, ended_ns - started_ns), 0) AS excess_ns, critical, over,
            coalesce(a.node, f.src_host) AS src_host, coalesce(b.node, f.dst_host) AS dst_host,
            traced, bytes
        FROM ranked w SEMI JOIN followed USING (job, comm, seq)
        LEFT JOIN homes a ON a.job = w.job AND a.rank = w.src
        LEFT JOIN homes b ON b.job = w.job AND b.rank = w.dst
        LEFT JOIN named f USING (flow)
        WHERE worst <= $most_steps
    """
