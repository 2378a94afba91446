"""GPUs, hosts and training processes at each reading, judged where a judgement is fair.

An idle GPU lowers its clock and its PCIe generation to save power, and says so as a throttle
reason. So clocks, reasons and the generation count only while it works; the width of its link and
its errors always.
"""

from __future__ import annotations

from oncall.analysis.common.counters import before, increase, per_second, readings, share
from oncall.evidence import Param, relation
from oncall.evidence.codes.throttle_reasons import REASONS, THROTTLING

_COUNTERS = ("ecc_uncorrected", "ecc_corrected", "nvlink_errors", "pcie_replays", "remapped_rows")


@relation(
    "gpu_states",
    reads=["gpus"],
    columns=[
        "node gpu at_ns",
        ("took_ns", "BIGINT", "ns", "time since the reading before; NULL for the first"),
        ("loaded", "BOOLEAN", "", "under load: busy at least half of the time; NULL if unknown"),
        "utilisation sm_clock_mhz",
        ("clock_share", "DOUBLE", "ratio", "SM clock as share of the maximum, under load"),
        "power_w temp_c",
        ("memory_share", "DOUBLE", "ratio", "GPU memory in use"),
        ("reasons", "VARCHAR[]", "", "throttle reasons by name, under load; else NULL"),
        ("throttled", "BOOLEAN", "", "some reason slows it, under load; else NULL"),
        ("pcie_width", "INTEGER", "lanes", "PCIe width"),
        ("pcie_share", "DOUBLE", "ratio", "bandwidth of the PCIe link as share of the maximum"),
        ("nvlinks_down", "INTEGER", "", "NVLinks that are not up"),
        *((name, "BIGINT", "", "increase since the reading before") for name in _COUNTERS),
        ("remap_failed", "BOOLEAN", "", "a memory row could not be remapped"),
        "processes",
    ],
    source="TFD Table 1",
    params={
        "loaded": "machine_symptoms.mostly",
    },
)
def gpu_states() -> str:
    """Each reading of each GPU with its throttle reasons by name, under load only."""
    grown = ", ".join(f"{increase(name)} AS {name}" for name in _COUNTERS)
    names = ", ".join(
        f"CASE WHEN throttle_reasons & {bit} > 0 THEN '{name}' END" for bit, name in REASONS.items()
    )
    return f"""
        WITH named AS (
            SELECT DISTINCT throttle_reasons, [n FOR n IN [{names}] IF n IS NOT NULL] AS names
            FROM gpus WHERE throttle_reasons IS NOT NULL),
        readings AS (
            SELECT *, utilisation >= $loaded AS loaded, at_ns - since_ns AS took_ns
            FROM ({readings("gpus", _COUNTERS, "node, gpu")}))
        SELECT node, gpu, at_ns, took_ns, loaded, utilisation, sm_clock_mhz,
            CASE WHEN loaded THEN sm_clock_mhz / nullif(sm_clock_max_mhz, 0) END AS clock_share,
            power_w, temp_c,
            memory_used_bytes / nullif(memory_bytes, 0) AS memory_share,
            CASE WHEN loaded THEN names END AS reasons,
            CASE WHEN loaded THEN throttle_reasons & {THROTTLING} > 0 END AS throttled,
            pcie_width,
            -- Each generation doubles a lane's rate.
            pcie_width / nullif(pcie_width_max, 0)
                * CASE WHEN loaded THEN pow(2.0, pcie_gen - pcie_gen_max) ELSE 1 END AS pcie_share,
            nvlinks - nvlinks_up AS nvlinks_down, {grown}, remap_failed, processes
        FROM readings LEFT JOIN named USING (throttle_reasons)
        WHERE took_ns IS NULL OR took_ns > 0
    """


@relation(
    "host_states",
    reads=["hosts"],
    columns=[
        "node at_ns",
        ("took_ns", "BIGINT", "ns", "time since the reading before; NULL for the first"),
        "cpu_busy cpus",
        ("cpu_pressure", "DOUBLE", "ratio", "share of time that some task waited for a CPU"),
        ("io_pressure", "DOUBLE", "ratio", "share of time that some task waited for storage"),
        ("memory_pressure", "DOUBLE", "ratio", "share of time that some task waited for memory"),
        ("clock_share", "DOUBLE", "ratio", "CPU clock as share of the maximum"),
        ("memory_available_share", "DOUBLE", "ratio", "memory available"),
        "swap_used_bytes",
        ("swapped_bytes", "BIGINT", "bytes", "swapped out more than at the reading before"),
        ("memory_corrected", "BIGINT", "", "corrected memory errors since the reading before"),
        ("memory_uncorrected", "BIGINT", "", "uncorrected ones"),
    ],
    source="TFD Table 1",
)
def host_states() -> str:
    """Each reading of each host, errors as increases and memory as shares."""
    return f"""
        WITH readings AS (
            SELECT *, at_ns - since_ns AS took_ns,
                swap_used_bytes - {before("swap_used_bytes")} AS swapped_bytes
            FROM ({readings("hosts", ("memory_corrected", "memory_uncorrected"), "node")})
            WINDOW w AS (PARTITION BY node ORDER BY at_ns))
        SELECT node, at_ns, took_ns, cpu_busy, cpus, cpu_pressure, io_pressure, memory_pressure,
            cpu_mhz / nullif(cpu_max_mhz, 0) AS clock_share,
            memory_available_bytes / nullif(memory_bytes, 0) AS memory_available_share,
            swap_used_bytes, swapped_bytes, {increase("memory_corrected")} AS memory_corrected,
            {increase("memory_uncorrected")} AS memory_uncorrected
        FROM readings WHERE took_ns IS NULL OR took_ns > 0
    """


MEASURED = "nics|gpus|hosts|host_processes"  # any readings of a machine


@relation(
    "process_rates",
    reads=["host_processes"],
    columns=[
        "job rank node pid",
        ("since_ns", "BIGINT", "ns", "the reading before"),
        ("at_ns", "BIGINT", "ns", "this reading"),
        ("took_ns", "BIGINT", "ns", "time between them"),
        ("cpus_used", "DOUBLE", "CPUs", "CPUs its threads used together"),
        ("waiting", "DOUBLE", "ratio", "share of time its main thread was ready and had no CPU"),
        ("throttled", "DOUBLE", "ratio", "share of time its cgroup was throttled by the quota"),
        "cpu_quota cpus_allowed numa_nodes",
        ("major_faults_per_s", "DOUBLE", "1/s", "page faults that read from disk"),
        ("read_bytes_per_s", "DOUBLE", "bytes/s", "read from storage"),
        "rss_bytes swap_bytes threads",
    ],
    source="VenusTrace 5.3, Pulse 8",
    params={"longest": "nic_rates.longest"},
)
def process_rates() -> str:
    """What each training process used between two readings; a new pid begins anew."""
    counters = ("cpu_ns", "waited_ns", "throttled_ns", "major_faults", "read_bytes")
    olds = ", ".join(f"{before(name)} AS {name}_0" for name in counters)
    return f"""
        WITH readings AS (
            SELECT *, {before("at_ns")} AS since_ns, at_ns - {before("at_ns")} AS took_ns, {olds}
            FROM host_processes WINDOW w AS (PARTITION BY job, rank, node, pid ORDER BY at_ns))
        SELECT job, rank, node, pid, since_ns, at_ns, took_ns,
            {per_second(f"({increase('cpu_ns', ())}) / 1e9")} AS cpus_used,
            {share(increase("waited_ns", ()))} AS waiting,
            {share(increase("throttled_ns", ()))} AS throttled, cpu_quota, cpus_allowed, numa_nodes,
            {per_second(increase("major_faults", ()))} AS major_faults_per_s,
            {per_second(increase("read_bytes", ()))} AS read_bytes_per_s,
            rss_bytes, swap_bytes, threads
        FROM readings WHERE took_ns > 0
    """


@relation(
    "process_symptoms",
    reads=[MEASURED],
    columns=[
        "job rank node gpu",
        ("throttled", "DOUBLE", "ratio", "share of time stopped for exceeding a CPU quota, high"),
        ("cpu_quota", "DOUBLE", "CPUs", "that quota, the lowest"),
        ("waiting", "DOUBLE", "ratio", "share of time its main thread had no CPU, high"),
        ("cpus_allowed", "INTEGER", "", "CPUs that its affinity allows, the fewest"),
        ("foreign", "BOOLEAN", "", "its CPUs are all on other NUMA nodes than its GPU"),
        ("numa_nodes", "INTEGER[]", "", "NUMA nodes of its CPUs, last"),
        ("gpu_numa_node", "INTEGER", "", "NUMA node of its GPU"),
        ("swap_bytes", "BIGINT", "bytes", "swapped out, at most"),
        ("major_faults_per_s", "DOUBLE", "1/s", "page faults that read from disk, high"),
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
