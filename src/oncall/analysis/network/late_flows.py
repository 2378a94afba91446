"""Operations that took longest beyond their best time, flow by flow, from ranks' traffic alone.

Each flow is compared with the best time that the same message ever took, so line rates do not
matter. In a pipelined ring all flows last as long as the slowest, so times do not show which flow
made the others wait; the NICs' counters may (`late_ends`).
"""

from __future__ import annotations

from oncall.evidence import Param, relation


@relation(
    "late_flows",
    reads=["op_traffic", "nics"],
    optional=["ranks", "clocks"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("comm", "UBIGINT", "", "communicator"),
        ("seq", "BIGINT", "", "the collective"),
        ("src", "INTEGER", "", "sending rank"),
        ("dst", "INTEGER", "", "receiving rank"),
        ("src_host", "VARCHAR", "", "host of the sender"),
        ("dst_host", "VARCHAR", "", "host of the receiver"),
        ("nic", "VARCHAR", "", "the sender's NIC that it used; NULL: not recorded"),
        ("started_ns", "BIGINT", "ns", "first byte, on the console's clock"),
        ("ended_ns", "BIGINT", "ns", "last byte"),
        ("excess_ns", "BIGINT", "ns", "beyond the best of the same message"),
        ("took_ns", "BIGINT", "ns", "the longest of the collective's flows"),
        ("lost_ns", "BIGINT", "ns", "the largest excess of these"),
    ],
    source="Vedrfolnir III-B; Pulse 5.2",
    params={
        "most_rounds": Param(
            16,
            "rounds of a communicator that are followed into the network, those that lost most: "
            "what lasts is in them",
        ),
        "best": "collective_steps.best",
        "late": "step_waits.late",
    },
)
def late_flows() -> str:
    """The flows between hosts that were late, of each communicator's collectives that lost most."""
    return """
        WITH homes AS (SELECT job, rank, any_value(node) AS node FROM ranks GROUP BY ALL),
        clock AS (
            SELECT DISTINCT ON (node) node, offset_ns FROM clocks ORDER BY node, at_ns DESC),
        best AS (
            SELECT job, comm, rank, peer, bytes,
                quantile_disc(ended_ns - started_ns, $best) AS best_ns
            FROM op_traffic WHERE kind = 'coll' AND peer IS NOT NULL AND ended_ns IS NOT NULL
            GROUP BY ALL),
        sent AS (
            SELECT t.job, t.comm, t.seq, t.rank AS src, t.peer AS dst, t.nic,
                t.started_ns - coalesce(c.offset_ns, 0) AS started_ns,
                t.ended_ns - coalesce(c.offset_ns, 0) AS ended_ns,
                t.ended_ns - t.started_ns AS took_ns, took_ns - b.best_ns AS excess_ns,
                coalesce(a.node, t.node) AS src_host, p.node AS dst_host, b.best_ns
            FROM op_traffic t JOIN best b USING (job, comm, rank, peer, bytes)
            LEFT JOIN homes a ON a.job = t.job AND a.rank = t.rank
            LEFT JOIN homes p ON p.job = t.job AND p.rank = t.peer
            LEFT JOIN clock c ON c.node = coalesce(a.node, t.node)
            WHERE t.kind = 'coll' AND t.ended_ns IS NOT NULL AND NOT coalesce(t.undercount, false)
                AND coalesce(a.node, t.node) IS DISTINCT FROM p.node),
        worst AS (
            SELECT job, comm, seq, max(took_ns) AS took_ns, max(excess_ns) AS lost_ns FROM sent
            GROUP BY job, comm, seq
            QUALIFY row_number() OVER (
                PARTITION BY job, comm ORDER BY max(excess_ns) DESC, seq) <= $most_rounds)
        SELECT s.job, s.comm, s.seq, s.src, s.dst, s.src_host, s.dst_host, s.nic, s.started_ns,
            s.ended_ns, s.excess_ns, w.took_ns, w.lost_ns
        FROM sent s JOIN worst w USING (job, comm, seq)
        WHERE s.excess_ns > $late * s.best_ns
    """
