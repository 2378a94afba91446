"""What a job's NICs sent, beside what its operations must have sent, in each quarter."""

from __future__ import annotations

from oncall.evidence import Param, relation


@relation(
    "job_traffic",
    reads=["nics|gpus|hosts|host_processes", "ranks"],
    optional=["nic_rates", "operations", "group_places", "priority_rates"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("part", "INTEGER", "", "quarter of the recording, from 0"),
        ("at_ns", "BIGINT", "ns", "its begin"),
        ("sent_bytes", "DOUBLE", "bytes", "sent by the NICs of its nodes through RDMA"),
        ("least_bytes", "DOUBLE", "bytes", "what its collectives across nodes sent at the least: "
         "each message once between two nodes"),
        ("ordinary", "DOUBLE", "ratio", "share of the sent bytes in priority 0, the ordinary one; "
         "NULL where priorities are not counted"),
        ("ordinary_bytes", "DOUBLE", "bytes", "the bytes themselves, whatever the protocol"),
    ],
    source="TFD 4.2: TCP and storage traffic beside training",
    params={
        "parts": Param(4, "of the recording; what was before a fault is in one of them"),
        "bulk": Param("1 MiB", "smaller operations move nothing that counts"),
    },
)  # fmt: skip
def job_traffic() -> str:
    """Each quarter of each job with the bytes of its NICs and of its operations."""
    return """
        WITH span AS (
            SELECT min(since_ns) AS first_ns, (max(at_ns) - min(since_ns)) / $parts AS part_ns
            FROM nic_rates),
        nodes AS (SELECT DISTINCT job, node FROM ranks),
        sent AS (
            SELECT job, least($parts - 1, floor((since_ns + took_ns // 2 - first_ns) / part_ns))
                    ::INTEGER AS part, min(since_ns) AS at_ns, sum(tx_bytes) AS sent_bytes
            FROM nic_rates JOIN nodes USING (node), span GROUP BY ALL),
        classes AS (
            SELECT job, least($parts - 1, floor((since_ns + took_ns // 2 - first_ns) / part_ns))
                    ::INTEGER AS part, sum(tx_bytes) FILTER (priority = 0) AS ordinary_bytes,
                sum(tx_bytes) AS all_bytes
            FROM priority_rates JOIN nodes USING (node), span GROUP BY ALL),
        messages AS (
            SELECT o.job, o.comm, o.seq, any_value(least($parts - 1,
                    floor((o.entered_ns - first_ns) / part_ns))::INTEGER) AS part,
                max(o.bytes * CASE WHEN o.op IN ('AllGather', 'ReduceScatter')
                    THEN coalesce(g.size, 1) ELSE 1 END) * max(coalesce(o.stands_for, 1)) AS bytes
            FROM operations o JOIN group_places g ON g.job = o.job AND g.comm = o.comm AND g.across,
                span
            WHERE o.kind = 'coll' AND o.done AND o.bytes >= $bulk
                AND o.entered_ns >= first_ns
            GROUP BY o.job, o.comm, o.seq),
        moved AS (SELECT job, part, sum(bytes) AS least_bytes FROM messages GROUP BY ALL)
        SELECT s.*, m.least_bytes, ordinary_bytes / nullif(all_bytes, 0) AS ordinary,
            ordinary_bytes
        FROM sent s LEFT JOIN moved m USING (job, part) LEFT JOIN classes c USING (job, part)
    """
