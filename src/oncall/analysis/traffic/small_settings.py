"""Large operations that run with NCCL settings for small ones."""

from __future__ import annotations

from oncall.evidence import Param, relation


@relation(
    "small_settings",
    reads=["ops", "group_places"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("at_ns", "BIGINT", "ns", "first such operation"),
        ("groups", "BIGINT", "", "communicators with such operations"),
        ("proto", "VARCHAR", "", "the most frequent protocol"),
        ("small_proto", "BOOLEAN", "", "that is one for small messages"),
        ("channels", "INTEGER", "", "the most frequent number of channels"),
        ("most_channels", "INTEGER", "", "the highest of these communicators"),
    ],
    source="NCCL's tuning",
    params={
        "bulk": Param("16 MiB", "from here on NCCL chooses bandwidth over latency by itself"),
        "few_channels": Param(
            2,
            "a ring of one or two channels fills neither NVLink nor a fast NIC; NCCL takes four "
            "or more",
        ),
        "nearly_all": "stray_traffic.nearly_all",
    },
)
def small_settings() -> str:
    """Jobs whose large operations nearly all use a protocol or too few channels for small ones."""
    return """
        WITH chosen AS (
            SELECT o.job, o.comm, o.started_ns, o.proto, o.channels,
                max(o.channels) OVER (PARTITION BY o.job, o.comm) AS most_channels
            FROM ops o SEMI JOIN group_places USING (job, comm)
            WHERE o.kind = 'coll' AND o.bytes >= $bulk
                AND (o.proto IS NOT NULL OR o.channels IS NOT NULL))
        SELECT job, min(started_ns) AS at_ns, count(DISTINCT comm) AS groups, mode(proto) AS proto,
            mode(proto) LIKE 'LL%' AS small_proto, mode(channels) AS channels,
            max(most_channels) AS most_channels
        FROM chosen WHERE proto = 'LL' OR channels <= $few_channels GROUP BY job
        HAVING count(DISTINCT comm) >= $nearly_all
            * (SELECT count(DISTINCT comm) FROM chosen c WHERE c.job = chosen.job)
    """
