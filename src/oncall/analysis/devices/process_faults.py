"""Training processes without the CPUs, the memory or the GPU that they need."""

from __future__ import annotations

from oncall.evidence import Param, relation


@relation(
    "process_faults",
    reads=["ranks", "process_symptoms", "gpu_symptoms"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("rank", "INTEGER", "", "global rank"),
        ("node", "VARCHAR", "", "its host"),
        ("gpu", "INTEGER", "", "its GPU"),
        ("nic", "VARCHAR", "", "its NIC"),
        ("pid", "BIGINT", "", "its process id"),
        (
            "part",
            "VARCHAR",
            "",
            "quota, waiting: for a CPU, numa, swap, full: its GPU's memory; or shared: "
            "its GPU is another's too",
        ),
        ("throttled", "DOUBLE", "ratio", "of quota: share of time that it stops the process"),
        ("cpu_quota", "DOUBLE", "CPUs", "of quota: how much it is"),
        ("cpus_allowed", "INTEGER", "", "of waiting: CPUs that it may use"),
        ("baseline", "DOUBLE", "", "of waiting: CPUs that a median rank may use"),
        ("waiting", "DOUBLE", "ratio", "of waiting: share of time it was ready and got no CPU"),
        ("numa_nodes", "INTEGER[]", "", "of numa: those of its CPUs"),
        ("gpu_numa_node", "INTEGER", "", "of numa: that of its GPU"),
        ("swap_bytes", "BIGINT", "bytes", "of swap: swapped out"),
        ("major_faults_per_s", "DOUBLE", "1/s", "of swap: pages read back"),
        ("memory_share", "DOUBLE", "ratio", "of full: GPU memory in use, at most"),
        ("processes", "INTEGER", "", "of shared: processes with memory on its GPU"),
        ("ranks", "BIGINT", "", "of shared: those of the job"),
    ],
    source="VenusTrace 5.3, Pulse 8, TFD Table 1",
    params={
        "quota_stops": Param(
            "5 %",
            "of the time that a quota stops a process; a CPU's worth of bursts stops it less",
        ),
        "without_cpu": Param(
            "5 %",
            "of the time, more than a median rank, a process is ready and gets no CPU: with CPUs "
            "to itself it never waits",
        ),
        "memory_full": Param(
            "97 %",
            "of GPU memory: then the allocator frees its cache and asks again, which waits for "
            "all kernels; beyond the other GPUs by as much as is free then",
        ),
        "swapped": Param("1 GiB", "of a training process; idle pages go out, so much is in use"),
        "faults": Param(
            10,
            "pages read back from disk a second; each stops a thread for a tenth of a millisecond "
            "or more",
        ),
    },
)
def process_faults() -> str:
    """What each training process lacks, one row for each part of it."""
    return """
        WITH placed AS (SELECT DISTINCT job, rank, node, gpu, nic, pid FROM ranks),
        symptoms AS (
            SELECT * EXCLUDE (node, gpu), median(cpus_allowed) OVER (PARTITION BY job) AS baseline,
                median(waiting) OVER (PARTITION BY job) AS ordinary
            FROM process_symptoms),
        swap AS (
            SELECT * FROM symptoms WHERE swap_bytes > $swapped AND major_faults_per_s > $faults),
        gpus AS (
            SELECT node, gpu, processes, memory_share, median(processes) OVER () AS baseline,
                median(memory_share) OVER () AS share_baseline
            FROM gpu_symptoms),
        owners AS (SELECT node, gpu, count(*) AS ranks FROM placed GROUP BY ALL)
        -- A quota is the container's, whatever is known of its ranks.
        SELECT 'quota' AS part, job, rank, node, throttled, cpu_quota
        FROM process_symptoms WHERE throttled > $quota_stops
        UNION ALL BY NAME
        SELECT 'waiting' AS part, p.*, s.cpus_allowed, s.baseline, s.waiting
        FROM placed p JOIN symptoms s USING (job, rank) WHERE s.waiting > s.ordinary + $without_cpu
        UNION ALL BY NAME
        SELECT 'numa' AS part, p.*, s.numa_nodes, s.gpu_numa_node
        FROM placed p JOIN symptoms s USING (job, rank) WHERE s.foreign
        UNION ALL BY NAME
        SELECT 'swap' AS part, p.*, s.swap_bytes, s.major_faults_per_s
        FROM placed p JOIN swap s USING (job, rank)
        UNION ALL BY NAME
        SELECT 'full' AS part, p.*, g.memory_share
        FROM placed p JOIN gpus g USING (node, gpu)
        WHERE g.memory_share > $memory_full AND g.memory_share > g.share_baseline + 1 - $memory_full
        UNION ALL BY NAME
        SELECT 'shared' AS part, p.*, g.processes, o.ranks
        FROM placed p JOIN gpus g USING (node, gpu) JOIN owners o USING (node, gpu)
        WHERE g.processes > o.ranks AND g.processes > g.baseline
    """
