"""What was measured of each GPU, host and training process over the recording, in one row each.

Rulebooks set these beside the other nodes' rows. All are there, empty, where nothing was measured
of the kind: a rule then finds nothing by it and goes on by the rest.
"""

from __future__ import annotations

from oncall.evidence import Param, relation

MEASURED = "nics|gpus|hosts|host_processes"


@relation(
    "gpu_symptoms",
    reads=[MEASURED],
    optional=["gpu_states"],
    columns=[
        ("node", "VARCHAR", "", "host"),
        ("gpu", "INTEGER", "", "GPU index on its node"),
        ("pcie_share", "DOUBLE", "ratio", "PCIe link bandwidth as share of the maximum, low"),
        ("replays_per_s", "DOUBLE", "1/s", "PCIe packets sent again"),
        ("nvlinks_down", "INTEGER", "", "NVLinks that were not up"),
        ("nvlink_errors", "BIGINT", "", "NVLink errors, in all"),
        ("nvlink_errors_per_s", "DOUBLE", "1/s", "NVLink errors"),
        ("uncorrected", "BIGINT", "", "memory errors that ECC could not correct"),
        ("remap_failed", "BOOLEAN", "", "a memory row could not be remapped"),
        ("memory_share", "DOUBLE", "ratio", "GPU memory in use, at most"),
        ("processes", "INTEGER", "", "processes that hold memory on it, at most"),
        ("held_ns", "BIGINT", "ns", "time throttled and below 92 % of the others' clock"),
        ("held_since_ns", "BIGINT", "ns", "since when"),
        ("reason", "VARCHAR", "", "the most frequent reason: power brake, power cap, heat, "
         "heat (hardware), hardware"),
        ("mhz", "DOUBLE", "MHz", "its clock then"),
        ("others_mhz", "DOUBLE", "MHz", "the others' clock then"),
        ("temp_c", "DOUBLE", "°C", "its temperature then"),
        ("power_w", "DOUBLE", "W", "its power then"),
    ],
    source="TFD Table 1",
    params={
        "moment": Param(
            "15 s",
            "in which the clocks of GPUs are compared: hosts are read some seconds apart",
        ),
        "held": Param("92 %", "of the others' clock: GPUs at equal work differ by a few percent"),
    },
)  # fmt: skip
def gpu_symptoms() -> str:
    """Each GPU with what NVML says of it."""
    return """
        WITH others AS (
            SELECT at_ns // $moment AS moment, median(sm_clock_mhz) AS others_mhz
            FROM gpu_states WHERE loaded GROUP BY ALL),
        compared AS (
            SELECT s.*, others_mhz, throttled AND sm_clock_mhz < $held * others_mhz AS held,
                CASE WHEN list_contains(reasons, 'power brake') THEN 'power brake'
                    WHEN list_contains(reasons, 'hardware thermal') THEN 'heat (hardware)'
                    WHEN list_contains(reasons, 'thermal') THEN 'heat'
                    WHEN list_contains(reasons, 'hardware slowdown') THEN 'hardware'
                    ELSE 'power cap' END AS reason
            FROM gpu_states s LEFT JOIN others ON moment = at_ns // $moment)
        SELECT node, gpu, quantile_cont(pcie_share, 0.2) AS pcie_share,
            sum(pcie_replays) * 1e9 / nullif(sum(took_ns), 0) AS replays_per_s,
            max(nvlinks_down) AS nvlinks_down, sum(nvlink_errors) AS nvlink_errors,
            sum(nvlink_errors) * 1e9 / nullif(sum(took_ns), 0) AS nvlink_errors_per_s,
            sum(ecc_uncorrected) AS uncorrected, bool_or(remap_failed) AS remap_failed,
            max(memory_share) AS memory_share, max(processes) AS processes,
            coalesce(sum(took_ns) FILTER (held), 0) AS held_ns,
            min(at_ns) FILTER (held) AS held_since_ns,
            mode(reason ORDER BY reason) FILTER (held) AS reason,
            median(sm_clock_mhz) FILTER (held) AS mhz,
            median(others_mhz) FILTER (held) AS others_mhz,
            median(temp_c) FILTER (held) AS temp_c, median(power_w) FILTER (held) AS power_w
        FROM compared GROUP BY node, gpu
    """


@relation(
    "host_symptoms",
    reads=[MEASURED],
    optional=["host_states"],
    columns=[
        ("node", "VARCHAR", "", "host"),
        ("seen_ns", "BIGINT", "ns", "time that was recorded of it"),
        ("corrected_per_s", "DOUBLE", "1/s", "memory errors that ECC corrected"),
        ("uncorrected", "BIGINT", "", "memory errors that it could not correct"),
        (
            "pressed_ns",
            "BIGINT",
            "ns",
            "time in which tasks waited for memory for 3 % or more of it",
        ),
        ("memory_pressure", "DOUBLE", "ratio", "the share of waiting then"),
        ("swapped_bytes", "BIGINT", "bytes", "swapped out more than at first"),
        ("crowded_ns", "BIGINT", "ns", "time with most CPUs busy and tasks waiting for one"),
        ("cpu_pressure", "DOUBLE", "ratio", "the share of waiting then"),
        ("clock_share", "DOUBLE", "ratio", "CPU clock as share of the maximum, low"),
        ("io_pressure", "DOUBLE", "ratio", "share of time that tasks waited for storage, high"),
    ],
    source="TFD Table 1",
    params={
        "pressed": Param(
            "3 %",
            "of the time tasks wait for memory: training that fits in memory hardly ever does",
        ),
        "crowded": Param(
            "10 %", "of the time tasks wait for a CPU: where CPUs are free hardly any do"
        ),
        "busy": Param("75 %", "of CPU time: training leaves most CPUs idle"),
    },
)
def host_symptoms() -> str:
    """Each host with what it says of its memory and CPUs."""
    crowded = "cpu_pressure > $crowded AND cpu_busy > $busy"
    return f"""
        SELECT node, sum(took_ns) AS seen_ns,
            sum(memory_corrected) * 1e9 / nullif(sum(took_ns), 0) AS corrected_per_s,
            sum(memory_uncorrected) AS uncorrected,
            coalesce(sum(took_ns) FILTER (memory_pressure > $pressed), 0) AS pressed_ns,
            median(memory_pressure) FILTER (memory_pressure > $pressed) AS memory_pressure,
            max(swap_used_bytes) - arg_min(swap_used_bytes, at_ns) AS swapped_bytes,
            coalesce(sum(took_ns) FILTER ({crowded}), 0) AS crowded_ns,
            median(cpu_pressure) FILTER ({crowded}) AS cpu_pressure,
            quantile_cont(clock_share, 0.2) AS clock_share,
            quantile_cont(io_pressure, 0.8) AS io_pressure
        FROM host_states GROUP BY node
    """


@relation(
    "process_symptoms",
    reads=[MEASURED],
    optional=["process_rates", "ranks", "devices"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("rank", "INTEGER", "", "global rank"),
        ("node", "VARCHAR", "", "host"),
        ("gpu", "INTEGER", "", "its GPU"),
        ("throttled", "DOUBLE", "ratio", "share of time stopped for exceeding a CPU quota, high"),
        ("cpu_quota", "DOUBLE", "CPUs", "that quota, the lowest"),
        ("waiting", "DOUBLE", "ratio", "share of time its main thread had no CPU, high"),
        ("cpus_allowed", "INTEGER", "", "CPUs that its affinity allows, the fewest"),
        ("foreign", "BOOLEAN", "", "its CPUs are all on other NUMA nodes than its GPU"),
        ("numa_nodes", "INTEGER[]", "", "NUMA nodes of its CPUs, last"),
        ("gpu_numa_node", "INTEGER", "", "NUMA node of its GPU"),
        ("swap_bytes", "BIGINT", "bytes", "swapped out, at most"),
        ("major_faults_per_s", "DOUBLE", "1/s", "page faults that read from disk, high"),
        ("read_bytes_per_s", "DOUBLE", "bytes/s", "read from storage in its last third"),
        ("cpus_used", "DOUBLE", "CPUs", "CPUs used in its last third"),
    ],
    source="VenusTrace 5.3, Pulse 8",
    params={"parts": Param(3, "of the recording: what a process does now is read in the last one")},
)
def process_symptoms() -> str:
    """Each training process with what its host says of it; `high`: in a quarter of the time."""
    return """
        WITH ends AS (
            SELECT job, rank, max(at_ns) - (max(at_ns) - min(at_ns)) / $parts AS last_third_ns
            FROM process_rates GROUP BY ALL),
        seen AS (
            SELECT p.job, p.rank, any_value(p.node) AS node,
                quantile_cont(throttled, 0.75) AS throttled, min(cpu_quota) AS cpu_quota,
                quantile_cont(waiting, 0.75) AS waiting, min(cpus_allowed) AS cpus_allowed,
                arg_max(numa_nodes, at_ns) AS numa_nodes, max(swap_bytes) AS swap_bytes,
                quantile_cont(major_faults_per_s, 0.75) AS major_faults_per_s,
                median(read_bytes_per_s) FILTER (at_ns > last_third_ns) AS read_bytes_per_s,
                median(cpus_used) FILTER (at_ns > last_third_ns) AS cpus_used
            FROM process_rates p JOIN ends USING (job, rank) GROUP BY p.job, p.rank),
        placed AS (
            SELECT r.job, r.rank, any_value(r.gpu) AS gpu, any_value(d.numa_node) AS gpu_numa_node
            FROM ranks r LEFT JOIN devices d
                ON d.node = r.node AND d.kind = 'gpu' AND d.device = r.gpu::VARCHAR
            GROUP BY ALL)
        SELECT s.*, gpu, gpu_numa_node,
            len(numa_nodes) > 0 AND NOT list_contains(numa_nodes, gpu_numa_node) AS foreign
        FROM seen s LEFT JOIN placed USING (job, rank)
    """
