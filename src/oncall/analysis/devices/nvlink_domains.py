"""Hosts whose GPUs share NVLinks: what fails there together has one cause."""

from __future__ import annotations

from oncall.evidence import Param, relation


@relation(
    "nvlink_domains",
    reads=["node_events", "event_meanings"],
    optional=["devices", "log_events"],
    columns=[
        ("node", "VARCHAR", "", "a host of the domain; NULL: the text does not name it"),
        ("domain", "VARCHAR", "", "the NVLink domain, as recorded or by its first host"),
    ],
    source="NVIDIA IMEX guide: an NVLink domain spans the hosts of one cluster UUID and clique",
    params={
        "together": Param("2 s", "stamps are whole seconds, and clocks differ by less than one"),
    },
)
def nvlink_domains() -> str:
    """The domain of each host with a GPU fault, where NVLinks fail in it.

    A domain is a host, or the hosts of one clique. Where no clique is recorded, hosts whose faults
    are of the same moment are taken to be one domain.
    """
    return """
        WITH RECURSIVE recorded AS (
            SELECT node, min(domain) AS clique FROM (
                SELECT node, nvlink_domain AS domain FROM devices
                UNION ALL
                SELECT node, text FROM log_events WHERE kind = 'net' AND code = 'clique')
            WHERE node IS NOT NULL AND domain IS NOT NULL GROUP BY node),
        failing AS (
            SELECT coalesce(e.node, '') AS node, at_ns, part <> 'gpu' AS of_link, clique
            FROM node_events e JOIN event_meanings m ON m.code = e.meant
            LEFT JOIN recorded r ON r.node = e.node
            WHERE part IN ('nvlink', 'fabric') OR (part = 'gpu' AND weight = 'fault')),
        moments AS (
            SELECT *, count(*) FILTER (apart) OVER (
                ORDER BY at_ns ROWS UNBOUNDED PRECEDING) AS moment
            FROM (SELECT *, at_ns - lag(at_ns) OVER (ORDER BY at_ns) > $together AS apart
                FROM failing WHERE at_ns IS NOT NULL)),
        cliques AS (
            SELECT *, coalesce(clique, if(min(clique) OVER one = max(clique) OVER one,
                min(clique) OVER one, NULL)) AS of_moment, min(node) OVER one AS first
            FROM moments WINDOW one AS (PARTITION BY moment)),
        -- Names of recorded cliques come before those of hosts.
        named AS (
            SELECT DISTINCT node, coalesce('0' || of_moment, '1' || first) AS name FROM cliques
            UNION SELECT node, coalesce('0' || clique, '1' || node) FROM failing),
        joined AS (
            FROM named UNION
            SELECT j.node, b.name FROM joined j JOIN named a USING (name)
            JOIN named b ON b.node = a.node),
        placed AS (
            SELECT node, bool_or(of_link) AS of_link,
                'NVLinks of ' || coalesce(any_value(clique), min(name)[2:]) AS domain
            FROM failing JOIN joined USING (node) GROUP BY node)
        SELECT nullif(node, '') AS node, domain FROM placed
        QUALIFY bool_or(of_link) OVER (PARTITION BY domain)
    """
