"""Hosts and training processes as they were between two readings."""

from __future__ import annotations

from oncall.analysis.common.counters import before, increase, per_second, readings, share
from oncall.evidence import relation


@relation(
    "host_states",
    reads=["hosts"],
    columns=[
        ("node", "VARCHAR", "", "host"),
        ("at_ns", "BIGINT", "ns", "the reading"),
        ("took_ns", "BIGINT", "ns", "time since the reading before; NULL for the first"),
        ("cpu_busy", "DOUBLE", "ratio", "share of CPU time busy"),
        ("cpus", "INTEGER", "", "CPUs online"),
        ("cpu_pressure", "DOUBLE", "ratio", "share of time that some task waited for a CPU"),
        ("io_pressure", "DOUBLE", "ratio", "share of time that some task waited for storage"),
        ("memory_pressure", "DOUBLE", "ratio", "share of time that some task waited for memory"),
        ("cpu_mhz", "DOUBLE", "MHz", "mean CPU clock"),
        ("clock_share", "DOUBLE", "ratio", "CPU clock as share of the maximum"),
        ("governor", "VARCHAR", "", "CPU frequency governor"),
        ("memory_available_share", "DOUBLE", "ratio", "memory available"),
        ("swap_used_bytes", "BIGINT", "bytes", "swapped out"),
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
            cpu_mhz, cpu_mhz / nullif(cpu_max_mhz, 0) AS clock_share, governor,
            memory_available_bytes / nullif(memory_bytes, 0) AS memory_available_share,
            swap_used_bytes, swapped_bytes, {increase("memory_corrected")} AS memory_corrected,
            {increase("memory_uncorrected")} AS memory_uncorrected
        FROM readings WHERE took_ns IS NULL OR took_ns > 0
    """


@relation(
    "process_rates",
    reads=["host_processes"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("rank", "INTEGER", "", "global rank"),
        ("node", "VARCHAR", "", "host"),
        ("pid", "BIGINT", "", "process id"),
        ("since_ns", "BIGINT", "ns", "the reading before"),
        ("at_ns", "BIGINT", "ns", "this reading"),
        ("took_ns", "BIGINT", "ns", "time between them"),
        ("cpus_used", "DOUBLE", "CPUs", "CPUs its threads used together"),
        ("waiting", "DOUBLE", "ratio", "share of time its main thread was ready and had no CPU"),
        (
            "throttled",
            "DOUBLE",
            "ratio",
            "share of time its cgroup was throttled for exceeding the quota",
        ),
        ("cpu_quota", "DOUBLE", "CPUs", "the CPU quota of its cgroups; NULL: no quota"),
        ("cpus_allowed", "INTEGER", "", "CPUs that its affinity allows"),
        ("numa_nodes", "INTEGER[]", "", "NUMA nodes of these CPUs"),
        ("major_faults_per_s", "DOUBLE", "1/s", "page faults that read from disk"),
        ("read_bytes_per_s", "DOUBLE", "bytes/s", "read from storage"),
        ("rss_bytes", "BIGINT", "bytes", "memory held"),
        ("swap_bytes", "BIGINT", "bytes", "swapped out"),
        ("threads", "INTEGER", "", "threads"),
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
