"""What a whole job does unlike what its machines are made for: placement, NICs, transport, settings
and priorities. One shape for all, as in `machine_symptoms`."""

from __future__ import annotations

from oncall.analysis.devices.states import MEASURED
from oncall.evidence import Param, relation


def _traffic() -> str:
    """What a job's NICs sent beside what its collectives across nodes sent at the least, each
    message once between two nodes; in each quarter, and of a byte of training. `ordinary` is the
    share in priority 0; NULL where priorities are not counted."""
    part = "least($parts - 1, floor(({} - first_ns) / part_ns))::INTEGER"
    middle = f"{part.format('since_ns + took_ns // 2')} AS part"
    return f"""
        span AS (
            SELECT min(since_ns) AS first_ns, (max(at_ns) - min(since_ns)) / $parts AS part_ns
            FROM nic_rates),
        sent AS (
            SELECT job, {middle}, min(since_ns) AS at_ns, sum(tx_bytes) AS sent_bytes
            FROM nic_rates JOIN nodes USING (node), span GROUP BY ALL),
        classes AS (
            SELECT job, {middle}, sum(tx_bytes) FILTER (priority = 0) AS ordinary_bytes,
                sum(tx_bytes) AS all_bytes
            FROM priority_rates JOIN nodes USING (node), span GROUP BY ALL),
        messages AS (
            SELECT o.job, o.comm, o.seq, any_value({part.format("o.entered_ns")}) AS part,
                max(o.bytes * CASE WHEN o.op IN ('AllGather', 'ReduceScatter')
                    THEN coalesce(g.size, 1) ELSE 1 END) * max(coalesce(o.stands_for, 1)) AS bytes
            FROM operations o JOIN group_places g ON g.job = o.job AND g.comm = o.comm AND g.across,
                span
            WHERE o.kind = 'coll' AND o.done AND o.bytes > 0 AND o.entered_ns >= first_ns
            GROUP BY o.job, o.comm, o.seq),
        moved AS (SELECT job, part, sum(bytes) AS least_bytes FROM messages GROUP BY ALL),
        quarters AS (
            SELECT s.*, least_bytes, sent_bytes / nullif(least_bytes, 0) AS each, ordinary_bytes,
                ordinary_bytes / nullif(all_bytes, 0) AS ordinary
            FROM sent s LEFT JOIN moved USING (job, part) LEFT JOIN classes USING (job, part)),
        balance AS (
            SELECT job, min(at_ns) AS at_ns, sum(sent_bytes) AS sent_bytes,
                sum(least_bytes) AS least_bytes, sum(ordinary_bytes) AS ordinary_bytes,
                arg_min(each, part) AS before, max(each) AS most, max(ordinary) AS ordinary
            FROM quarters GROUP BY job),
        everywhere AS (
            SELECT j.job, count(*) AS nics, median(greatest(lost, resent)) AS loss_share,
                count(*) FILTER (lost > $loss OR resent > $loss) AS losing,
                count(*) FILTER (marked > $marks) AS marking
            FROM nic_symptoms s JOIN nodes j USING (node) GROUP BY ALL)
    """


def _settings() -> str:
    """The protocol and the channels of large operations, where nearly all communicators use one
    for small messages."""
    return """
        chosen AS (
            SELECT o.job, o.comm, o.started_ns, o.proto, o.channels,
                max(o.channels) OVER (PARTITION BY o.job, o.comm) AS most_channels
            FROM ops o SEMI JOIN group_places USING (job, comm)
            WHERE o.kind = 'coll' AND o.bytes >= $bulk
                AND (o.proto IS NOT NULL OR o.channels IS NOT NULL)),
        settings AS (
            SELECT job, min(started_ns) AS at_ns, count(DISTINCT comm) AS groups,
                mode(proto) AS proto, mode(channels) AS channels,
                max(most_channels) AS most_channels
            FROM chosen WHERE proto = 'LL' OR channels <= $few_channels GROUP BY job
            HAVING count(DISTINCT comm) >= $nearly_all
                * (SELECT count(DISTINCT comm) FROM chosen c WHERE c.job = chosen.job))
    """


@relation(
    "job_symptoms",
    reads=["ranks", MEASURED],
    columns=[
        "job",
        ("code", "VARCHAR", "", "the symptom: spread_groups, sockets, few_channels, ..."),
        ("comm", "UBIGINT", "", "of spread_groups: a tensor-parallel communicator"),
        "role",
        ("comm_name", "VARCHAR", "", "its name"),
        ("rank", "INTEGER", "", "of far_nics: a rank with a NIC beside another GPU"),
        "node gpu nic",
        ("at_ns", "BIGINT", "ns", "since when, if known"),
        ("value", "DOUBLE", "", "ranks of a group; bytes that RDMA carried; channels; or a share: "
         "of bytes in the ordinary priority, of bytes sent beyond what training took before"),
        ("others", "DOUBLE", "", "nodes of a group; bytes that collectives sent at the least; the "
         "most channels; or the share of packets that a median NIC loses"),
        ("groups", "BIGINT", "", "communicators with such settings"),
        ("text", "VARCHAR", "", "their protocol"),
    ],
    source="TFD 4.2: TP over nodes, TCP and storage traffic beside training; NCCL's tuning",
    params={
        "parts": "latency_split.parts",
        "bulk": Param("16 MiB", "from here on NCCL chooses bandwidth over latency by itself"),
        "few_channels": Param(2, "a ring of one or two channels fills neither NVLink nor a fast "
                              "NIC; NCCL takes four or more"),
        "through_rdma": Param("20 %", "of what collectives must have sent at the least; the rest "
                              "went another way"),
        "mostly": "machine_symptoms.mostly",
        "more_than_own": Param("120 %", "of what NICs sent for each byte of training before"),
        "marks": Param("0.02 %", "of packets, for a quarter of the time, on nearly all NICs"),
        "loss": Param("0.005 %", "of packets, on nearly all NICs at once"),
        "nearly_all": "machine_symptoms.nearly_all",
    },
)  # fmt: skip
def job_symptoms() -> str:
    """Each symptom of each job as a whole.

    Counters of 32 bits wrap unseen between readings, and fall at some of them: where priorities are
    not counted, such bytes are no bytes by sockets. Those of an unused NIC hardly grow.
    """
    return f"""
        WITH placed AS (SELECT DISTINCT job, rank, node, gpu, nic FROM ranks),
        nodes AS (SELECT job, node, count(*) AS ranks FROM placed GROUP BY ALL),
        {_traffic()}, {_settings()},
        falling AS (
            SELECT job FROM nodes JOIN (
                SELECT node, tx_bytes < lag(tx_bytes) OVER (
                    PARTITION BY node, nic, port ORDER BY at_ns) AS fell FROM nics) USING (node)
            GROUP BY job HAVING bool_or(fell)),
        shown AS (
            SELECT g.job, 'spread_groups' AS code, g.comm, g.role, g.name AS comm_name,
                g.size::DOUBLE AS value, g.nodes::DOUBLE AS others
            FROM group_places g
            WHERE g.role = 'tp' AND g.nodes > ceil(g.size / (
                SELECT max(ranks) FROM nodes n WHERE n.job = g.job))
            UNION ALL BY NAME
            SELECT p.*, 'far_nics' AS code FROM placed p SEMI JOIN (FROM nic_symptoms WHERE far)
                USING (node, nic)
            UNION ALL BY NAME
            SELECT job, if(ordinary_bytes IS NULL, 'not_rdma', 'sockets') AS code,
                sent_bytes AS value, least_bytes AS others
            FROM balance WHERE sent_bytes < $through_rdma * least_bytes
                AND CASE WHEN ordinary_bytes IS NULL THEN job NOT IN (SELECT job FROM falling)
                    ELSE ordinary_bytes >= $mostly * (least_bytes - sent_bytes) END
            UNION ALL BY NAME
            SELECT job, if(proto LIKE 'LL%', 'small_protocol', 'few_channels') AS code, at_ns,
                channels AS value, most_channels AS others, groups, proto AS text
            FROM settings
            UNION ALL BY NAME
            SELECT job, 'ordinary_priority' AS code, at_ns, ordinary AS value,
                loss_share AS others
            FROM balance JOIN everywhere USING (job)
            WHERE ordinary > $mostly AND losing >= $nearly_all * nics
            UNION ALL BY NAME
            SELECT job, 'shared_priority' AS code, at_ns, most / before - 1 AS value
            FROM balance JOIN everywhere USING (job)
            WHERE marking >= $nearly_all * nics AND most > $more_than_own * before)
        FROM shown
    """
