"""What stands out on a machine: its PCIe links, GPUs, memory, CPUs, processes and set-up.

Each symptom is one row of one shape: the component, a code, the number that shows it and the number
of the others. `machines.yaml` says what a code means. Nodes of a job have the same hardware, the
same software and alike work (TFD 2.1), so that the others are the measure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from oncall.analysis.devices.node_events import in_words
from oncall.analysis.devices.states import MEASURED
from oncall.evidence import Param, relation


class Check(NamedTuple):
    """A symptom: its code, when it holds, the number that shows it and that of the others."""

    code: str
    holds: str
    value: str
    others: str = "NULL"
    text: str = "NULL"


_PCIE = (
    Check("nic_narrow", "n.narrow", "n.pcie_share", text="'narrow'"),
    Check("gpu_narrow", "g.narrow", "g.pcie_share", text="'narrow'"),
    Check("nic_errs", "n.pcie_errors_per_s > $errors", "n.pcie_errors_per_s", text="'erring'"),
    Check("gpu_errs", "g.replays_per_s > $errors", "g.replays_per_s", text="'erring'"),
    Check("nic_waits", "n.pcie_stalled AND n.pcie_waiting IS NOT NULL", "n.pcie_waiting",
          text="'stalled'"),
    Check("nic_stalls", "n.pcie_stalled", "n.pcie_stalls_per_s", text="'stalled'"),
)  # fmt: skip
_GPU = (
    Check("nvlinks_down", "g.nvlinks_down > 0", "g.nvlinks_down"),
    Check("nvlink_errors", "g.nvlink_errors_per_s > $errors", "g.nvlink_errors"),
    Check("remap_failed", "g.remap_failed", "NULL"),
    Check("gpu_memory", "g.uncorrected > 0", "g.uncorrected"),
    Check("gpu_slowed", "g.held_ns >= $lasting AND g.reason = 'hardware'", "g.mhz"),
    Check("throttled", "g.held_ns >= $lasting", "g.mhz", "g.others_mhz", "g.reason"),
)
_USE = (
    Check("gpu_shared", "g.processes > o.ranks AND g.processes > g.median_processes",
          "g.processes", "o.ranks"),
    Check("gpu_full", "g.memory_share > $full AND g.memory_share > g.median_share + 1 - $full",
          "g.memory_share"),
)  # fmt: skip
_HOST = (
    Check("memory_uncorrected", "h.uncorrected > 0", "h.uncorrected"),
    Check("memory_corrected", "h.corrected_per_s > $errors", "h.corrected_per_s"),
    Check("memory_short", "h.pressed AND coalesce(h.swapped_bytes, 0) = 0", "h.memory_pressure"),
    Check("cpus_busy", "h.busier", "h.cpu_pressure"),
    Check("cpu_clock", "h.slow_clock", "h.clock_share", "h.median_clock"),
    Check("all_cpus_busy", "h.crowded AND NOT coalesce(h.busier OR h.slow_clock, false)",
          "h.cpu_pressure"),
    Check("late_inside", "a.is_late AND NOT coalesce(h.crowded OR h.slow_clock, false)",
          "a.host_ns", "a.nics"),
    Check("storage", "h.io_pressure > $crowded + h.median_io AND NOT coalesce(w.swaps, false)",
          "h.io_pressure"),
)  # fmt: skip
_PROCESS = (
    Check("quota", "s.throttled > $stopped", "s.throttled", "s.cpu_quota"),
    Check("few_cpus", "s.waits AND s.cpus_allowed < s.median_cpus", "s.waiting", "s.median_cpus"),
    Check("no_cpu", "s.waits", "s.waiting"),
    Check("numa", "s.foreign", "s.gpu_numa_node", text="array_to_string(s.numa_nodes, ', ')"),
    Check("swap", "s.swaps", "s.major_faults_per_s", "s.swap_bytes"),
)


def _codes(*checks: Sequence[Check]) -> str:
    return ", ".join(f"'{check.code}'" for group in checks for check in group)


def _holding(checks: Sequence[Check]) -> str:
    """SQL: a list of the checks that hold."""
    each = ", ".join(
        f"{{'code': '{c.code}', 'value': ({c.value})::DOUBLE, 'others': ({c.others})::DOUBLE, "
        f"'text': ({c.text})::VARCHAR, 'holds': coalesce({c.holds}, false)}}"
        for c in checks
    )
    return f"[c FOR c IN [{each}] IF c.holds]"


def _gpus() -> str:
    """Each GPU with what NVML counts of it, and when something held its clock down."""
    return """
        clocks_then AS (
            SELECT at_ns // $lasting AS moment, median(sm_clock_mhz) AS others_mhz
            FROM gpu_states WHERE loaded GROUP BY ALL),
        clocked AS (
            SELECT s.*, others_mhz, throttled AND sm_clock_mhz < $held * others_mhz AS held,
                CASE WHEN list_contains(reasons, 'power brake') THEN 'power brake'
                    WHEN list_contains(reasons, 'hardware thermal') THEN 'heat (hardware)'
                    WHEN list_contains(reasons, 'thermal') THEN 'heat'
                    WHEN list_contains(reasons, 'hardware slowdown') THEN 'hardware'
                    ELSE 'power cap' END AS reason
            FROM gpu_states s LEFT JOIN clocks_then ON moment = at_ns // $lasting),
        read_gpus AS (
            SELECT node, gpu, quantile_cont(pcie_share, 0.2) AS pcie_share,
                sum(pcie_replays) * 1e9 / nullif(sum(took_ns), 0) AS replays_per_s,
                max(nvlinks_down) AS nvlinks_down, sum(nvlink_errors) AS nvlink_errors,
                sum(nvlink_errors) * 1e9 / nullif(sum(took_ns), 0) AS nvlink_errors_per_s,
                sum(ecc_uncorrected) AS uncorrected, bool_or(remap_failed) AS remap_failed,
                max(memory_share) AS memory_share, max(processes) AS processes,
                sum(took_ns) FILTER (held) AS held_ns, min(at_ns) FILTER (held) AS held_since_ns,
                mode(reason ORDER BY reason) FILTER (held) AS reason,
                median(sm_clock_mhz) FILTER (held) AS mhz,
                median(others_mhz) FILTER (held) AS others_mhz,
                median(temp_c) FILTER (held) AS temp_c, median(power_w) FILTER (held) AS power_w
            FROM clocked GROUP BY node, gpu),
        gpu_side AS (
            SELECT *, pcie_share < $below * median(pcie_share) OVER () AS narrow,
                median(processes) OVER () AS median_processes,
                median(memory_share) OVER () AS median_share
            FROM read_gpus),
        nic_side AS (
            SELECT *, pcie_share < $below * median(pcie_share) OVER () AS narrow
            FROM nic_symptoms),
        owners AS (SELECT node, gpu, count(*) AS ranks FROM placed GROUP BY ALL)
    """


def _hosts() -> str:
    """Each node with what it says of its memory and CPUs, and its NICs' pings."""
    crowded = "cpu_pressure > $crowded AND cpu_busy > $busy"
    lasts = "least($lasting, $mostly * seen_ns)"
    return f"""
        read_hosts AS (
            SELECT node, sum(took_ns) AS seen_ns,
                sum(memory_corrected) * 1e9 / nullif(sum(took_ns), 0) AS corrected_per_s,
                sum(memory_uncorrected) AS uncorrected,
                sum(took_ns) FILTER (memory_pressure > $pressed) >= {lasts} AS pressed,
                median(memory_pressure) FILTER (memory_pressure > $pressed) AS memory_pressure,
                max(swap_used_bytes) - arg_min(swap_used_bytes, at_ns) AS swapped_bytes,
                coalesce(sum(took_ns) FILTER ({crowded}), 0) AS crowded_ns,
                crowded_ns >= {lasts} AS crowded,
                median(cpu_pressure) FILTER ({crowded}) AS cpu_pressure,
                crowded_ns * coalesce(median(cpu_pressure) FILTER ({crowded}), 0) AS waited_ns,
                quantile_cont(clock_share, 0.2) AS clock_share,
                quantile_cont(io_pressure, 0.8) AS io_pressure
            FROM host_states GROUP BY node),
        host_side AS (
            SELECT n.job, h.*, median(clock_share) OVER of_job AS median_clock,
                clock_share < $below * median_clock AS slow_clock,
                median(io_pressure) OVER of_job AS median_io,
                crowded AND waited_ns > $beyond * median(waited_ns) OVER (PARTITION BY n.job
                    ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING
                    EXCLUDE CURRENT ROW) AS busier
            FROM nodes n JOIN read_hosts h USING (node) WINDOW of_job AS (PARTITION BY n.job)),
        answers AS (
            SELECT node, median(host_ns) AS host_ns, count(*) AS nics,
                nics > 1 AND min(host_beyond) > $clearly
                    AND coalesce(median(network_beyond) < $clearly, true)
                    AND bool_or(pcie_stalled) IS DISTINCT FROM true AS is_late
            FROM nic_symptoms GROUP BY node),
        processes_ AS (
            SELECT *, waiting > median(waiting) OVER of_job + $stopped AS waits,
                median(cpus_allowed) OVER of_job AS median_cpus,
                coalesce(swap_bytes > $swapped AND major_faults_per_s > $faults, false) AS swaps
            FROM process_symptoms WINDOW of_job AS (PARTITION BY job)),
        swapping AS (SELECT job, node, bool_or(swaps) AS swaps FROM processes_ GROUP BY ALL)
    """


def _logged() -> str:
    """What a collector read of the kernel's log since the host's processes started: what was before
    did not keep them from it. `faults` reports lines of files."""
    meaning = in_words("e", "m.meaning", of_link="m.part = 'nvlink'", fatal="e.fatal")
    return f"""
        lines AS (
            SELECT e.node, gpu, m.part, min(at_ns) AS at_ns, any_value(domain) AS domain,
                arg_min({{'text': {meaning}, 'action': m.action, 'fatal': e.fatal}},
                    (e.fatal IS DISTINCT FROM true, at_ns)) AS first
            FROM node_events e JOIN event_meanings m ON m.code = e.meant
            LEFT JOIN nvlink_domains USING (node)
            ANTI JOIN ranks r ON r.node = e.node AND e.at_ns < r.started_ns
            WHERE e.path IS NULL AND (e.code = 'oom'
                OR (gpu IS NOT NULL AND m.weight = 'fault' AND m.part IN ('gpu', 'nvlink')))
            GROUP BY ALL),
        ports AS (
            SELECT node, pcie_port FROM node_events JOIN event_meanings m USING (code)
            WHERE m.part = 'pcie' AND gpu IS NULL AND nic IS NULL AND pcie_port IS NOT NULL
            GROUP BY ALL HAVING count(*) > 1)
    """


def _unlike() -> str:
    """Each difference of a node from nearly all others. Where some counter's growth is not known,
    nothing is said of what its node uses."""
    return """
        sent AS (SELECT node, priority, sum(tx_bytes) AS sent FROM priority_rates GROUP BY ALL),
        carried AS (
            SELECT job, node, nic, sum(tx_bytes) AS sent
            FROM nic_rates JOIN nodes USING (node)
            WHERE tx_bytes IS NOT NULL OR rx_bytes IS NOT NULL GROUP BY ALL),
        set_ups AS (
            SELECT job, node, 'priority' AS code, arg_max(priority, sent)::VARCHAR AS text
            FROM sent JOIN nodes USING (node) GROUP BY ALL HAVING count(sent) = count(*)
            UNION ALL
            SELECT job, node, 'nics_used', count(*) FILTER (sent > $used * most)::VARCHAR
            FROM (SELECT *, max(sent) OVER (PARTITION BY job) AS most FROM carried)
            WHERE most > 0 GROUP BY ALL HAVING count(sent) = count(*)
            UNION ALL
            SELECT job, node, kind || '_firmware',
                string_agg(DISTINCT firmware, ', ' ORDER BY firmware)
            FROM devices JOIN nodes USING (node)
            WHERE firmware IS NOT NULL AND kind IN ('gpu', 'nic') GROUP BY ALL),
        common AS (
            SELECT job, code, mode(text) AS others_text, count(*) AS nodes FROM set_ups
            GROUP BY ALL),
        unlike AS (
            SELECT s.*, others_text FROM set_ups s JOIN common USING (job, code)
            WHERE nodes >= $nodes
            QUALIFY text <> others_text AND count(*) FILTER (text = others_text)
                OVER (PARTITION BY job, code) >= $nearly_all * nodes)
    """


@relation(
    "machine_symptoms",
    reads=["ranks", MEASURED],
    columns=[
        "job",
        ("suspect", "VARCHAR", "", "the component: a PCIe port, a GPU, a rank, a host, ..."),
        ("code", "VARCHAR", "", "the symptom: nic_narrow, throttled, quota, ...; pcie_port: both "
         "devices of a pair, or several below one port, have one of PCIe"),
        "node",
        ("rank", "INTEGER", "", "the rank that uses it; NULL: it is of the whole host"),
        ("gpu", "INTEGER", "", "that rank's GPU"),
        "nic pid pci_bus",
        ("at_ns", "BIGINT", "ns", "since when, if known"),
        ("value", "DOUBLE", "", "the number that shows it: a share, a rate, a count, MHz or ns"),
        ("others", "DOUBLE", "", "what that number is compared with; of PCIe: ranks of the host "
         "with such a symptom"),
        ("text", "VARCHAR", "", "how a PCIe link is, what holds a clock down, what was logged, "
         "NUMA nodes, or a set-up"),
        ("others_text", "VARCHAR", "", "of a set-up: that of nearly all other nodes"),
        ("cpus", "INTEGER", "", "CPUs that its process may use"),
        ("temp_c", "DOUBLE", "°C", "its GPU's temperature while its clock was held down"),
        ("power_w", "DOUBLE", "W", "its power then"),
        ("action", "VARCHAR", "", "what to do about what was logged"),
        ("fatal", "BOOLEAN", "", "whether that says that it is fatal"),
        ("domain", "VARCHAR", "", "the NVLink domain in which it failed"),
    ],
    source="TFD Table 1, 2.1, 4.2; VenusTrace 5.3, Pulse 8; NVML, EDAC, PSI",
    params={
        "lasting": Param("15 s", "hosts are read some seconds apart, and what lasts less is a "
                         "start, a checkpoint or a neighbour's burst"),
        "mostly": Param("50 %", "of readings, bytes, NICs or GPUs, or of a short recording"),
        "held": Param("92 %", "of the others' clock: GPUs at equal work differ by a few percent"),
        "below": Param("75 %", "of the others' PCIe bandwidth, of which a lane group or generation "
                       "less is half, or of their CPU clock, which varies by some percent"),
        "errors": Param(0.5, "a second: a sound link or module has a few a day"),
        "pressed": Param("3 %", "of the time tasks wait for memory: training that fits never does"),
        "crowded": Param("10 %", "of the time tasks wait for a CPU, or for storage more than on a "
                         "median node: CPUs are free, and training reads little and in advance"),
        "busy": Param("75 %", "of CPU time: training leaves most CPUs idle"),
        "beyond": Param(2, "times as long as the median of the other nodes waits for a CPU; nodes "
                        "that do alike work differ by less"),
        "clearly": Param(6, "times what NICs, nodes, groups or tasks deviate by from one another, "
                         "and over time: 4 sigma of a normal"),
        "stopped": Param("5 %", "of the time a quota stops a process, or other processes have its "
                         "CPUs, more than of a median rank"),
        "full": Param("97 %", "of GPU memory: then the allocator frees its cache and asks again, "
                      "which waits for all kernels; beyond the others by what is free then"),
        "swapped": Param("1 GiB", "of a training process; idle pages go out, so much is in use"),
        "faults": Param(10, "pages read back from disk a second; each stops a thread for a tenth "
                        "of a millisecond or more"),
        "nodes": Param(4, "of fewer nobody knows which one is the exception"),
        "nearly_all": Param("75 %", "of nodes or GPUs: what they have is what is meant; of an even "
                            "split neither half is unlike"),
        "used": Param("10 %", "of what the busiest NIC of the job sends: less is no traffic of it"),
    },
)  # fmt: skip
def machine_symptoms() -> str:
    """Each symptom of each component of a job's machines."""
    return f"""
        WITH placed AS (SELECT DISTINCT job, rank, node, gpu, nic, pid, pci_bus FROM ranks),
        nodes AS (SELECT DISTINCT job, node FROM placed WHERE node IS NOT NULL),
        {_gpus()}, {_hosts()}, {_logged()}, {_unlike()},
        shown AS (
            SELECT p.*, n.pcie_port, n.narrow AND g.narrow AS both_narrow,
                l.node IS NOT NULL AS port_logged, g.temp_c, g.power_w, g.held_since_ns,
                unnest({_holding(_PCIE)}[1:1] || {_holding(_GPU + _USE)}, recursive := true)
            FROM placed p LEFT JOIN gpu_side g USING (node, gpu)
            LEFT JOIN nic_side n ON n.node = p.node AND n.nic = p.nic
            LEFT JOIN ports l ON l.node = p.node AND l.pcie_port = n.pcie_port
            LEFT JOIN owners o ON o.node = p.node AND o.gpu = p.gpu
            WHERE p.gpu IS NOT NULL
            UNION ALL BY NAME
            SELECT p.*, CASE l.part WHEN 'nvlink' THEN 'nvlink_logged' ELSE 'gpu_logged' END
                    AS code, l.at_ns, l.domain, unnest(l.first)
            FROM placed p JOIN lines l USING (node, gpu)
            UNION ALL BY NAME
            SELECT n.*, 'out_of_memory' AS code, l.at_ns
            FROM nodes n JOIN lines l USING (node) WHERE l.part NOT IN ('gpu', 'nvlink')
            UNION ALL BY NAME
            SELECT n.*, unnest({_holding(_HOST)}, recursive := true)
            FROM nodes n LEFT JOIN host_side h USING (job, node) LEFT JOIN answers a USING (node)
            LEFT JOIN swapping w ON w.job = n.job AND w.node = n.node
            UNION ALL BY NAME
            SELECT s.job, s.rank, s.node, p.* EXCLUDE (job, rank, node), s.cpus_allowed AS cpus,
                unnest({_holding(_PROCESS)}, recursive := true)
            FROM processes_ s LEFT JOIN placed p USING (job, rank)
            UNION ALL BY NAME FROM unlike),
        placed_symptoms AS (
            SELECT *, code IN ({_codes(_PCIE)}) AS of_pcie,
                count(DISTINCT if(of_pcie, rank, NULL)) OVER (PARTITION BY job, node) AS pairs,
                coalesce(of_pcie AND pcie_port IS NOT NULL AND (
                    bool_or(of_pcie AND (both_narrow OR port_logged)) OVER of_port
                    OR count(DISTINCT if(of_pcie, rank, NULL)) OVER of_port > 1), false) AS is_port,
                count(DISTINCT rank) OVER (PARTITION BY job, node, code) AS ranks
            FROM shown WINDOW of_port AS (PARTITION BY job, node, pcie_port))
        SELECT * REPLACE (
                if(is_port, 'pcie_port', code) AS code,
                if(of_pcie, pairs, others) AS others,
                if(code = 'throttled', held_since_ns, at_ns) AS at_ns),
            CASE WHEN is_port THEN concat_ws(' ', node, 'port', pcie_port)
                WHEN code IN ({_codes(_PROCESS, _USE)}) THEN if(ranks > 1,
                    concat_ws(' ', 'the ranks of', node), concat_ws(' ', 'rank', rank))
                WHEN rank IS NOT NULL THEN concat_ws(' ', node, 'GPU', gpu)
                WHEN code = 'all_cpus_busy' THEN 'the job''s nodes'
                WHEN others_text IS NOT NULL OR code = 'storage'
                    THEN concat_ws(' ', code, 'of', node)
                ELSE node END AS suspect
        FROM placed_symptoms
    """
