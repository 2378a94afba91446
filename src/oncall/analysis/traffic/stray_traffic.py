"""Traffic that bypasses the network, or the priority, that training traffic should use."""

from __future__ import annotations

from oncall.evidence import Param, relation


@relation(
    "stray_traffic",
    reads=["ranks", "job_traffic", "nic_symptoms", "nics"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("kind", "VARCHAR", "", "sockets: it bypasses RDMA; storage: other traffic shares its "
         "priority; ordinary: it is in the priority that may drop packets"),
        ("at_ns", "BIGINT", "ns", "since when, if known"),
        ("sent_bytes", "DOUBLE", "bytes", "of sockets: what RDMA carried"),
        ("least_bytes", "DOUBLE", "bytes", "of sockets: what collectives sent at the least"),
        ("ordinary_bytes", "DOUBLE", "bytes", "of sockets: in the ordinary priority; NULL: not "
         "counted"),
        ("extra", "DOUBLE", "ratio", "of storage: sent beyond what each byte of training took "
         "before"),
        ("ordinary", "DOUBLE", "ratio", "of ordinary: share of bytes in that priority"),
        ("loss_share", "DOUBLE", "ratio", "of ordinary: packets that a median NIC loses"),
    ],
    source="TFD 4.2: TCP and storage traffic beside training",
    params={
        "through_rdma": Param(
            "20 %",
            "of what collectives must have sent at the least; the rest went another way",
        ),
        "by_sockets": Param(
            "50 %", "of what RDMA did not carry is in the ordinary priority: TCP goes there"
        ),
        "more_than_own": Param(
            "120 %", "of what the NICs sent for each byte of training before"
        ),
        "marks": Param("0.02 %", "of packets, for a quarter of the time, on nearly all NICs"),
        "loss": Param("0.005 %", "of packets, on nearly all NICs at once"),
        "nearly_all": Param("75 %", "of the job's NICs: no single switch or cable does that"),
        "in_ordinary": Param(
            "50 %",
            "of the bytes: training belongs into a priority of its own that loses nothing",
        ),
    },
)  # fmt: skip
def stray_traffic() -> str:
    """Each job's traffic that bypasses RDMA, shares its priority or may be dropped.

    Counters of 32 bits wrap unseen between readings, and fall at some of them: where priorities
    are not counted, such bytes are no bytes by sockets. Those of an unused NIC hardly grow.
    """
    return """
        WITH placed AS (SELECT DISTINCT job, node FROM ranks),
        falling AS (
            SELECT DISTINCT j.job, true AS fell FROM placed j JOIN (
                SELECT node, tx_bytes < lag(tx_bytes) OVER (
                    PARTITION BY node, nic, port ORDER BY at_ns) AS fell FROM nics
            ) n USING (node) WHERE n.fell),
        sums AS (
            SELECT job, sum(sent_bytes) AS sent_bytes, sum(least_bytes) AS least_bytes,
                sum(ordinary_bytes) AS ordinary_bytes
            FROM job_traffic GROUP BY job),
        everywhere AS (
            SELECT j.job, count(*) AS nics, median(greatest(lost, resent)) AS loss_share,
                count(*) FILTER (lost > $loss OR resent > $loss) AS losing,
                count(*) FILTER (marked > $marks) AS marking
            FROM nic_symptoms s JOIN placed j USING (node) GROUP BY ALL),
        balance AS (
            SELECT job, arg_min(sent_bytes / nullif(least_bytes, 0), part) AS before,
                min(at_ns) AS at_ns, max(sent_bytes / nullif(least_bytes, 0)) AS most,
                max(ordinary) AS ordinary
            FROM job_traffic GROUP BY job)
        SELECT 'sockets' AS kind, t.* FROM sums t LEFT JOIN falling f USING (job)
        WHERE t.sent_bytes < $through_rdma * t.least_bytes
            AND CASE WHEN t.ordinary_bytes IS NULL THEN f.fell IS NULL
                ELSE t.ordinary_bytes >= $by_sockets * (t.least_bytes - t.sent_bytes) END
        UNION ALL BY NAME
        SELECT 'storage' AS kind, t.job, t.at_ns, t.most / t.before - 1 AS extra
        FROM balance t JOIN everywhere e USING (job)
        WHERE e.marking >= $nearly_all * e.nics AND t.most > $more_than_own * t.before
        UNION ALL BY NAME
        SELECT 'ordinary' AS kind, t.job, t.at_ns, t.ordinary, e.loss_share
        FROM balance t JOIN everywhere e USING (job)
        WHERE t.ordinary > $in_ordinary AND e.losing >= $nearly_all * e.nics
    """
