"""Nodes that are set up, or used, unlike nearly all others of the job."""

from __future__ import annotations

from oncall.evidence import Param, relation


@relation(
    "unlike_nodes",
    reads=["ranks", "nics|nic_priorities|gpus|hosts|devices"],
    optional=["priority_rates", "nic_use", "devices"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("node", "VARCHAR", "", "a node unlike the others"),
        ("what", "VARCHAR", "", "priority: in which it sends most; nics: how many carry its "
         "traffic; gpu, nic: firmware or driver of those devices"),
        ("value", "VARCHAR", "", "what it is there"),
        ("others", "VARCHAR", "", "... and on nearly all other nodes"),
    ],
    source="TFD 2.1: same hardware, same software, same traffic; a difference is a hint",
    params={
        "nodes": Param(4, "of fewer nobody knows which one is the exception"),
        "nearly_all": Param("75 %", "of the nodes: of an even split neither half is unlike"),
        "used": Param("10 %", "of what the busiest NIC of the job sends: less is no traffic of it"),
    },
)  # fmt: skip
def unlike_nodes() -> str:
    """Each difference of a node from nearly all others. Where some counter's growth is not known,
    nothing is said of what its node uses."""
    return """
        WITH placed AS (SELECT DISTINCT job, node FROM ranks WHERE node IS NOT NULL),
        sent AS (SELECT node, priority, sum(tx_bytes) AS sent FROM priority_rates GROUP BY ALL),
        carried AS (
            SELECT job, node, nic, sum(tx_bytes) AS sent
            FROM nic_use JOIN placed USING (node) GROUP BY ALL),
        readings AS (
            SELECT job, node, 'priority' AS what, arg_max(priority, sent)::VARCHAR AS value
            FROM sent JOIN placed USING (node) GROUP BY ALL HAVING count(sent) = count(*)
            UNION ALL
            SELECT job, node, 'nics', count(*) FILTER (sent > $used * most)::VARCHAR
            FROM (SELECT *, max(sent) OVER (PARTITION BY job) AS most FROM carried)
            WHERE most > 0 GROUP BY ALL HAVING count(sent) = count(*)
            UNION ALL
            SELECT job, node, kind, string_agg(DISTINCT firmware, ', ' ORDER BY firmware)
            FROM devices JOIN placed USING (node) WHERE firmware IS NOT NULL GROUP BY ALL),
        counted AS (
            SELECT *, count(*) OVER w AS nodes, mode(value) OVER w AS others
            FROM readings WINDOW w AS (PARTITION BY job, what))
        SELECT * EXCLUDE (nodes) FROM counted
        WHERE nodes >= $nodes
        QUALIFY value <> others AND count(*) FILTER (value = others) OVER (PARTITION BY job, what)
            >= $nearly_all * nodes
    """
