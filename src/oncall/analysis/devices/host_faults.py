"""Nodes whose memory or CPUs are short, erring or slow, beside the job's other nodes."""

from __future__ import annotations

from oncall.evidence import Param, relation


@relation(
    "host_faults",
    reads=["ranks", "host_symptoms", "nic_symptoms", "node_events"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("node", "VARCHAR", "", "its node"),
        ("part", "VARCHAR", "", "memory; storage; cpu: this node's CPUs alone; cpus: all nodes' "
         "alike; or inside: its NICs answer late from within"),
        ("reason", "VARCHAR", "", "of memory: uncorrected, corrected, oom; NULL: it is short"),
        ("at_ns", "BIGINT", "ns", "of oom: when"),
        ("uncorrected", "BIGINT", "", "memory errors that ECC could not correct"),
        ("corrected_per_s", "DOUBLE", "1/s", "memory errors that it corrected"),
        ("memory_pressure", "DOUBLE", "ratio", "share of time that tasks waited for memory"),
        ("crowded", "BOOLEAN", "", "tasks waited for a CPU; else its CPUs' clock is low"),
        ("cpu_pressure", "DOUBLE", "ratio", "the share of waiting"),
        ("clock_share", "DOUBLE", "ratio", "CPU clock as share of the maximum"),
        ("baseline", "DOUBLE", "ratio", "the same of a median node"),
        ("io_pressure", "DOUBLE", "ratio", "share of time that its tasks waited for storage"),
        ("host_ns", "DOUBLE", "ns", "what pings take longer inside the host"),
        ("nics", "BIGINT", "", "through how many NICs"),
    ],
    source="TFD Table 1; EDAC; PSI",
    params={
        "lasting": "gpu_faults.lasting",
        "mostly": Param("50 %", "... or of a shorter recording"),
        "memory_errors": Param(
            0.3,
            "corrected errors a second: each stops a CPU for a moment, a sound module has a few a "
            "day",
        ),
        "cpu_clock": Param(
            "70 %", "of the other nodes' CPU clock; governors and load make some percent"
        ),
        "storage": Param(
            "10 %", "of the time, more than a median node: training reads little and in advance"
        ),
        "beyond": Param(
            2,
            "times as long as the median of the other nodes waits for a CPU; nodes that do alike "
            "work differ by less",
        ),
        "clearly": Param(
            6, "times what NICs deviate by from one another, and over time: 4 sigma of a normal"
        ),
    },
)  # fmt: skip
def host_faults() -> str:
    """Each fault of each of a job's nodes. What the other nodes wait as well makes none of them
    slower than another."""
    return """
        WITH nodes AS (SELECT DISTINCT job, node FROM ranks WHERE node IS NOT NULL),
        ran_out AS (
            SELECT node, min(at_ns) AS at_ns FROM node_events WHERE code = 'oom' GROUP BY node),
        memory AS (
            SELECT n.*, h.uncorrected, h.corrected_per_s, h.memory_pressure, e.at_ns,
                CASE WHEN h.uncorrected > 0 THEN 'uncorrected' WHEN e.node IS NOT NULL THEN 'oom'
                    WHEN h.corrected_per_s > $memory_errors THEN 'corrected' END AS reason
            FROM nodes n LEFT JOIN host_symptoms h USING (node) LEFT JOIN ran_out e USING (node)
            WHERE h.uncorrected > 0 OR h.corrected_per_s > $memory_errors OR e.node IS NOT NULL
                OR (h.pressed_ns >= least($lasting, $mostly * h.seen_ns)
                    AND coalesce(h.swapped_bytes, 0) = 0)),
        symptoms AS (
            SELECT *, median(clock_share) OVER () AS baseline,
                crowded_ns >= least($lasting, $mostly * seen_ns) AS crowded,
                crowded_ns * coalesce(cpu_pressure, 0) AS waited_ns
            FROM host_symptoms),
        starved AS (
            SELECT job, node, crowded, cpu_pressure, clock_share, baseline, waited_ns
            FROM nodes JOIN symptoms USING (node)),
        cpu AS (
            SELECT * FROM starved s
            WHERE s.clock_share < $cpu_clock * s.baseline OR (s.crowded
                AND s.waited_ns > $beyond * (SELECT median(o.waited_ns) FROM starved o
                    WHERE o.job = s.job AND o.node <> s.node))),
        cpus AS (SELECT * FROM starved ANTI JOIN cpu USING (job, node) WHERE crowded),
        answers AS (
            SELECT node, median(host_ns) AS host_ns, min(host_beyond) AS host_beyond,
                median(network_beyond) AS network_beyond, count(*) AS nics,
                bool_or(pcie_stalled) AS stalls
            FROM nic_symptoms GROUP BY node),
        inside AS (
            SELECT n.*, a.host_ns, a.nics FROM nodes n JOIN answers a USING (node)
            ANTI JOIN cpu USING (job, node) ANTI JOIN cpus USING (job, node)
            WHERE a.nics > 1 AND a.host_beyond > $clearly AND a.stalls IS DISTINCT FROM true
                AND coalesce(a.network_beyond < $clearly, true)),
        storage AS (
            SELECT job, node, io_pressure FROM nodes JOIN (
                SELECT *, median(io_pressure) OVER () AS ordinary FROM host_symptoms) USING (node)
            WHERE io_pressure > $storage + ordinary)
        SELECT 'memory' AS part, * FROM memory
        UNION ALL BY NAME SELECT 'storage' AS part, * FROM storage
        UNION ALL BY NAME SELECT 'cpu' AS part, * FROM cpu
        UNION ALL BY NAME SELECT 'cpus' AS part, * FROM cpus
        UNION ALL BY NAME SELECT 'inside' AS part, * FROM inside
    """
