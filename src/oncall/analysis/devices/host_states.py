"""Hosts as they were between two readings."""

from __future__ import annotations

from oncall.analysis.common.counters import before, increase, readings
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
