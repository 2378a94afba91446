"""GPUs and hosts as they were at each reading, judged where a judgement is fair.

An idle GPU lowers its clock and its PCIe generation to save power, and says so as a throttle
reason. So clocks, reasons and the generation count only while it works; the width of its link and
its errors always.
"""

from __future__ import annotations

from oncall.analysis.common.counters import before, increase, readings
from oncall.evidence import relation
from oncall.evidence.codes.throttle_reasons import REASONS, THROTTLING

_COUNTERS = ("ecc_uncorrected", "ecc_corrected", "nvlink_errors", "pcie_replays", "remapped_rows")


@relation(
    "gpu_states",
    reads=["gpus"],
    columns=[
        ("node", "VARCHAR", "", "host"),
        ("gpu", "INTEGER", "", "GPU index on its node"),
        ("at_ns", "BIGINT", "ns", "the reading"),
        ("took_ns", "BIGINT", "ns", "time since the reading before; NULL for the first"),
        ("loaded", "BOOLEAN", "", "under load: busy at least half of the time; NULL if unknown"),
        ("utilisation", "DOUBLE", "ratio", "share of time a kernel ran"),
        ("sm_clock_mhz", "INTEGER", "MHz", "SM clock"),
        ("clock_share", "DOUBLE", "ratio", "SM clock as share of the maximum, under load"),
        ("power_w", "DOUBLE", "W", "power draw"),
        ("power_share", "DOUBLE", "ratio", "power as share of the enforced limit"),
        ("temp_c", "DOUBLE", "°C", "temperature"),
        ("memory_share", "DOUBLE", "ratio", "GPU memory in use"),
        ("reasons", "VARCHAR[]", "", "throttle reasons by name, under load; else NULL"),
        ("throttled", "BOOLEAN", "", "some reason slows it, under load; else NULL"),
        ("pcie_gen", "INTEGER", "", "PCIe generation"),
        ("pcie_width", "INTEGER", "lanes", "PCIe width"),
        ("slow_pcie", "BOOLEAN", "", "generation below the maximum, under load; else NULL"),
        ("narrow_pcie", "BOOLEAN", "", "width below the maximum"),
        ("pcie_share", "DOUBLE", "ratio", "bandwidth of the PCIe link as share of the maximum"),
        ("nvlinks_down", "INTEGER", "", "NVLinks that are not up"),
        *((name, "BIGINT", "", "increase since the reading before") for name in _COUNTERS),
        ("remap_failed", "BOOLEAN", "", "a memory row could not be remapped"),
        ("xid", "INTEGER", "", "last XID"),
        ("processes", "INTEGER", "", "processes that hold memory on it"),
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
            power_w, power_w / nullif(power_limit_w, 0) AS power_share, temp_c,
            memory_used_bytes / nullif(memory_bytes, 0) AS memory_share,
            CASE WHEN loaded THEN names END AS reasons,
            CASE WHEN loaded THEN throttle_reasons & {THROTTLING} > 0 END AS throttled,
            pcie_gen, pcie_width,
            CASE WHEN loaded THEN pcie_gen < pcie_gen_max END AS slow_pcie,
            pcie_width < pcie_width_max AS narrow_pcie,
            -- Each generation doubles a lane's rate.
            pcie_width / nullif(pcie_width_max, 0)
                * CASE WHEN loaded THEN pow(2.0, pcie_gen - pcie_gen_max) ELSE 1 END AS pcie_share,
            nvlinks - nvlinks_up AS nvlinks_down, {grown}, remap_failed, xid, processes
        FROM readings LEFT JOIN named USING (throttle_reasons)
        WHERE took_ns IS NULL OR took_ns > 0
    """


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
