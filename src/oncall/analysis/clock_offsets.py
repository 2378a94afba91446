"""How far each node's clock is from the common time, and by how much that may be wrong."""

from __future__ import annotations

from oncall.evidence import relation


@relation(
    "clock_offsets",
    reads=["ranks"],
    optional=["clocks"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("node", "VARCHAR", "", "host"),
        ("offset_ns", "BIGINT", "ns", "to subtract from the node's times"),
        ("error_ns", "BIGINT", "ns", "half width of what the offset may be off by"),
        ("source", "VARCHAR", "", "measured, estimated (from collectives), or same node"),
    ],
    source="VenusTrace 3.3",
)
def clock_offsets() -> str:
    """Each node's clock against the common time. A node that is not here is not known."""
    return """
        WITH placed AS (SELECT DISTINCT job, node FROM ranks WHERE node IS NOT NULL),
        measured AS (
            SELECT node, arg_min(offset_ns, error_ns) AS offset_ns, min(error_ns) AS error_ns
            FROM clocks WHERE offset_ns IS NOT NULL AND error_ns IS NOT NULL GROUP BY node),
        single AS (SELECT job FROM placed GROUP BY job HAVING count(*) = 1)
        SELECT job, node, 0 AS offset_ns, 0 AS error_ns, 'same node' AS source
        FROM placed SEMI JOIN single USING (job)
        UNION ALL
        SELECT job, node, offset_ns, error_ns, 'measured'
        FROM placed JOIN measured USING (node) ANTI JOIN single USING (job)
    """
