"""What each training process used, between two readings and over the recording."""

from __future__ import annotations

from oncall.analysis.common.counters import before, increase, per_second, share
from oncall.evidence import Param, relation

MEASURED = "nics|gpus|hosts|host_processes"  # any readings of a machine


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
        ("throttled", "DOUBLE", "ratio", "share of time its cgroup was throttled by the quota"),
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


@relation(
    "process_symptoms",
    reads=[MEASURED],
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
