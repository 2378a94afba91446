"""What hosts report as text: lines of logs, and what snapshots of states and counters show.

Lines and states mean what the table of codes says. Counters of a snapshot have no known beginning:
only what grew between two of them is a fault. What one snapshot shows is a level, and no fault.
"""

from __future__ import annotations

from oncall.analysis.faults.reported_faults import JOB
from oncall.evidence import Param, relation
from oncall.evidence.codes.throttle_reasons import POWER_CAP, REASONS, THROTTLING

# SQL: whether text was read at all
OF_TEXT = "EXISTS (FROM recordings WHERE kind IN ('host_text', 'port_counters'))"
_HELD = THROTTLING & ~POWER_CAP
_REASONS = ", ".join(
    f"if(reasons & {bit} > 0, '{name}', NULL)" for bit, name in REASONS.items() if bit & THROTTLING
)
_DEVICE_COLUMNS = "node, at_ns, code, said_of, gpu, nic, path, line, text, meant, fatal, nvlink"


def _lines() -> str:
    """What lines say; of links that are down, those that are meant to be up."""
    return f"""
        up AS (
            SELECT node, nic, coalesce(port, 1) AS port, arg_max(link_up, at_ns) AS is_up,
                nic || if(count(*) OVER (PARTITION BY node, nic) > 1, '/' || any_value(port), '')
                    AS device
            FROM nics WHERE link_up IS NOT NULL GROUP BY node, nic, port),
        meant AS (
            SELECT node, device FROM up d WHERE NOT is_up AND (
                EXISTS (FROM up o WHERE o.nic = d.nic AND o.port = d.port AND o.is_up
                    AND o.node IS DISTINCT FROM d.node)
                OR (SELECT count(*) FILTER (is_up) >= $siblings AND count(*) FILTER (NOT is_up) = 1
                    FROM up o WHERE o.node IS NOT DISTINCT FROM d.node AND o.port = d.port)
                    AND NOT EXISTS (FROM up o WHERE o.nic = d.nic AND o.port = d.port
                        AND NOT o.is_up
                        AND o.node IS DISTINCT FROM d.node)
                    AND NOT EXISTS (FROM node_events e WHERE e.code = 'port_down'
                        AND e.said_of = d.device AND e.node IS NOT DISTINCT FROM d.node
                        AND e.text ILIKE '%disabled%')
                OR d.nic IN (SELECT device FROM log_events WHERE kind = 'net' AND code = 'hca'))),
        lines AS (
            SELECT {_DEVICE_COLUMNS} FROM node_events e WHERE path IS NOT NULL
                AND (code <> 'port_down' OR EXISTS (FROM meant m WHERE m.device = e.said_of
                    AND m.node IS NOT DISTINCT FROM e.node)))
    """


def _grown() -> str:
    """What counters grew by between two snapshots."""
    return f"""
        grown AS (
            SELECT node, 'ecc_grew' AS code, gpu::VARCHAR AS said_of, gpu,
                ecc_uncorrected || ' uncorrectable errors since the snapshot before' AS text
            FROM gpu_states WHERE ecc_uncorrected > 0 AND {OF_TEXT}
            UNION ALL BY NAME SELECT node, 'nvlink_grew' AS code, gpu::VARCHAR AS said_of,
                gpu, nvlink_errors || ' NVLink errors since the snapshot before' AS text
            FROM gpu_states WHERE nvlink_errors > 0 AND {OF_TEXT})
    """


def _grown_ports() -> str:
    """The same of each port: what it says is one text, whose gravest part is its code."""
    return f"""
        port_sums AS (
            SELECT node, nic, sum(link_downs) AS downs, sum(link_errors) AS errors,
                sum(timeouts) AS late, sum(pause_storms) AS storms,
                coalesce(sum(retransmits), 0) AS again
            FROM nic_rates WHERE {OF_TEXT} GROUP BY node, nic),
        grown_ports AS (
            SELECT node, nic AS said_of, nic,
                CASE WHEN downs > 0 THEN 'link_downs_grew'
                    WHEN errors >= $link_errors THEN 'link_errors_grew'
                    WHEN late >= $timeouts THEN 'timeouts_grew'
                    WHEN storms > 0 THEN 'storms_grew' END AS code,
                concat_ws(', ',
                    if(downs > 0, 'its link went down ' || downs
                        || if(downs = 1, ' time', ' times'), NULL),
                    if(errors > 0, errors || ' link errors', NULL),
                    if(late > 0, late || ' requests without an answer in time', NULL),
                    if(storms > 0, storms || ' pause storms', NULL),
                    if(again > 0, again || ' packets sent again', NULL))
                || ' between two snapshots' AS text
            FROM port_sums WHERE code IS NOT NULL)
    """


def _behind() -> str:
    """Ports, GPUs and hosts of which most that are alike have more: rates of ports, of the same
    one of other hosts before those of its own; of GPUs NVLinks that are up and power limits; GPUs
    that hosts list. A rate or limit that is chosen is the same on all of them."""
    return f"""
        rated AS (
            SELECT n.node, n.nic, coalesce(port, 1) AS port, any_value(model) AS model,
                arg_max(rate_bytes_per_s, n.at_ns) * 8 / 1e9 AS value
            FROM nics n LEFT JOIN devices d
                ON d.kind = 'nic' AND d.device = n.nic AND d.node IS NOT DISTINCT FROM n.node
            WHERE link_up AND rate_bytes_per_s > 0 AND {OF_TEXT} GROUP BY ALL),
        gpu_levels AS (
            SELECT g.node, gpu, any_value(model) AS model, arg_max(nvlinks_up, g.at_ns) AS up,
                arg_max(power_limit_w, g.at_ns) AS watts, arg_max(sm_clock_mhz, g.at_ns) AS mhz
            FROM gpus g LEFT JOIN devices d ON d.kind = 'gpu' AND d.device = gpu::VARCHAR
                AND d.node IS NOT DISTINCT FROM g.node
            WHERE {OF_TEXT} GROUP BY g.node, gpu),
        levels_of AS (
            SELECT 'port_slow' AS code, node, nic, coalesce(node, '') AS place, value,
                printf('%s port %d: %.0f Gb/s', nic, port, value) AS said,
                'hosts %.0f Gb/s' AS unlike,
                [nic, port::VARCHAR, model] AS alike, 1 AS least, $nearly_all AS share
            FROM rated
            UNION ALL BY NAME
            SELECT 'port_slow' AS code, node, nic, nic AS place, value,
                printf('%s port %d: %.0f Gb/s', nic, port, value) AS said,
                'ports %.0f Gb/s' AS unlike,
                [node, port::VARCHAR, model] AS alike, $siblings AS least, 1 AS share
            FROM rated QUALIFY count(*) OVER (PARTITION BY nic, port, model) = 1
            UNION ALL BY NAME
            SELECT 'nvlinks_down' AS code, node, gpu, gpu::VARCHAR AS place, up AS value,
                up || ' are up' AS said, 'GPUs %.0f' AS unlike, [node] AS alike, $siblings AS least,
                $nearly_all AS share
            FROM gpu_levels WHERE up IS NOT NULL
            UNION ALL BY NAME
            -- rocm-smi prints a device's number for its model.
            SELECT if(model LIKE '0x%', 'amd_', '') || 'gpu_capped' AS code, node, gpu,
                gpu::VARCHAR AS place, watts AS value, printf('%.0f W', watts)
                || coalesce(' at ' || mhz || ' MHz', '') AS said, 'GPUs %.0f W' AS unlike,
                [node, model] AS alike, $siblings AS least, $nearly_all AS share
            FROM gpu_levels WHERE watts IS NOT NULL
            UNION ALL BY NAME
            SELECT 'gpu_missing' AS code, node, coalesce(node, '') AS place,
                count(DISTINCT device) AS value, value || ' GPUs are listed' AS said,
                'hosts %.0f' AS unlike, ['all'] AS alike, $others AS least, $mostly AS share
            FROM devices WHERE kind = 'gpu' AND {OF_TEXT} GROUP BY node),
        behind AS (
            SELECT d.code, d.node, d.gpu, d.nic, coalesce(d.nic, d.gpu::VARCHAR) AS said_of,
                d.said || ', on ' || count(*) FILTER (o.value > d.value) || ' of ' || count(*)
                || ' other ' || printf(d.unlike, mode(o.value) FILTER (o.value > d.value)) AS text
            FROM levels_of d JOIN levels_of o
                ON o.code = d.code AND o.unlike = d.unlike AND o.alike = d.alike
                AND o.place <> d.place
            GROUP BY d.code, d.node, d.gpu, d.nic, d.said, d.unlike, d.least, d.share
            HAVING count(*) FILTER (o.value > d.value) >= greatest(d.least, d.share * count(*)))
    """


def _throttled() -> str:
    """GPUs held down by heat or power, and hosts of which most GPUs are."""
    return f"""
        clocked AS (
            SELECT node, gpu, bit_or(throttle_reasons) & {THROTTLING} AS reasons,
                avg((throttle_reasons & {_HELD} > 0)::INT) AS held,
                avg((throttle_reasons & {POWER_CAP} > 0)::INT) >= $mostly AS is_capped,
                median(sm_clock_mhz)::BIGINT AS mhz, max(sm_clock_max_mhz) AS most_mhz
            FROM gpus WHERE throttle_reasons IS NOT NULL AND {OF_TEXT} GROUP BY node, gpu),
        held_down AS (
            SELECT node, 'gpu_throttled' AS code,
                coalesce(d.pci_bus, gpu::VARCHAR) AS said_of, gpu,
                count(*) OVER host AS of_gpus, reasons,
                concat_ws(', ', {_REASONS}) || coalesce('; SM clock ' || mhz || ' MHz'
                    || coalesce(' of ' || most_mhz, ''), '') AS text
            FROM clocked c LEFT JOIN (
                SELECT node AS home, device, any_value(pci_bus) AS pci_bus FROM devices
                WHERE kind = 'gpu' GROUP BY ALL) d
                ON d.home IS NOT DISTINCT FROM c.node AND d.device = c.gpu::VARCHAR
            WINDOW host AS (PARTITION BY node)
            QUALIFY held >= $mostly OR (is_capped AND count(*) OVER host > 1
                AND count(*) FILTER (is_capped) OVER host < $mostly * count(*) OVER host)),
        throttled AS (
            FROM held_down WINDOW alike AS (PARTITION BY node, reasons)
            QUALIFY count(*) OVER alike <= $others
                OR count(*) OVER alike < $nearly_all * of_gpus),
        hosts_throttled AS (
            SELECT node, 'host_throttled' AS code, arg_min(text, gpu) || ' (' || count(*)
                || ' of ' || any_value(of_gpus) || ' GPUs)' AS text
            FROM held_down ANTI JOIN throttled t ON t.node IS NOT DISTINCT FROM held_down.node
                AND t.gpu IS NOT DISTINCT FROM held_down.gpu
            GROUP BY node, reasons)
    """


def _narrow() -> str:
    """GPUs whose PCIe link has fewer lanes than it could. Its speed is no sign: it drops while the
    GPU idles; lanes do not."""
    return f"""
        narrow AS (
            SELECT n.node, 'pcie_bandwidth' AS code,
                coalesce(d.pci_bus, 'GPU ' || n.gpu) AS said_of,
                n.gpu, n.width || ' of ' || n.most || ' PCIe lanes' AS text
            FROM (SELECT node, gpu, max(pcie_width) AS width, max(pcie_width_max) AS most FROM gpus
                WHERE {OF_TEXT} GROUP BY node, gpu) n
            LEFT JOIN (SELECT node AS home, device, any_value(pci_bus) AS pci_bus FROM devices
                WHERE kind = 'gpu' GROUP BY ALL) d
                ON d.home IS NOT DISTINCT FROM n.node AND d.device = n.gpu::VARCHAR
            WHERE n.width < n.most)
    """


@relation(
    "reported_states",
    reads=["host_events|gpus|nics"],
    columns=[
        ("node", "VARCHAR", "", "host, if the text names it"),
        ("at_ns", "BIGINT", "ns", "when, if the text states it"),
        ("code", "VARCHAR", "", "xid_79, port_down, ecc_grew, ..."),
        ("said_of", "VARCHAR", "", "PCI address, interface, RDMA device or process"),
        ("gpu", "INTEGER", "", "index of the GPU it is about"),
        ("nic", "VARCHAR", "", "the NIC it is about"),
        ("path", "VARCHAR", "", "the file; NULL: found by comparing two"),
        "line text meant fatal",
        ("nvlink", "INTEGER", "", "the NVLink it is about"),
    ],
    source="text of hosts",
    params={
        "siblings": Param(
            3,
            "ports of the same host that are up, for the only one that is down to be meant, if no "
            "other host has the same one down and nobody disabled it; second ports of adapters "
            "are compared with second ports: often none of them is cabled",
        ),
        "link_errors": Param(100, "between two snapshots: a good cable has one in hours"),
        "timeouts": Param(10, "between two snapshots: each holds a queue pair up for a while"),
        "mostly": "machine_symptoms.mostly",
        "nearly_all": "machine_symptoms.nearly_all",
        "others": Param(2, "hosts that list more GPUs, for one with fewer to have lost some"),
    },
)
def reported_states() -> str:
    """What lines say, and what snapshots or hosts show together: since when, they do not."""
    return f"""
        WITH {_lines()}, {_grown()}, {_grown_ports()}, {_throttled()}, {_narrow()}, {_behind()}
        SELECT * REPLACE (coalesce(meant, code) AS meant) FROM (
            FROM lines UNION ALL BY NAME FROM grown UNION ALL BY NAME FROM grown_ports
            UNION ALL BY NAME FROM narrow UNION ALL BY NAME FROM behind
            UNION ALL BY NAME FROM throttled UNION ALL BY NAME FROM hosts_throttled)
    """


# What two snapshots show the growth of, and no fault by itself: marks and pauses are how networks
# keep going.
GROWING = {
    "out_of_sequence": "packets out of sequence",
    "retransmits": "packets sent again",
    "rx_discards": "packets dropped on arrival",
    "tx_discards": "packets dropped before they were sent",
    "out_of_buffer": "receives without a work request",
    "ecn_marked": "ECN-marked packets",
    "pfc_rx_pause": "pause frames received",
    "pfc_tx_pause": "pause frames sent",
    "pcie_stalls": "waits for host memory",
    "pcie_errors": "errors of its PCIe link",
}


def levels() -> str:
    """CTE `levels`: what a single snapshot shows and cannot judge. `kind` is its code; `grown`:
    between two snapshots; `waiting`: GPUs busy at little power; `elsewhere`: nodes out of use."""
    gpu_counters = {
        "ecc_uncorrected": "uncorrectable memory errors",
        "ecc_corrected": "corrected memory errors",
        "nvlink_errors": "NVLink errors",
        "remapped_rows": "memory rows remapped after uncorrectable errors",
    }
    nic_counters = {
        "link_downs": "times its link went down",
        "link_errors": "link errors",
        "pause_storms": "pause storms",
    }
    grown = ", ".join(
        f"if(sum({name}) > 0, sum({name}) || ' {doc}', NULL)" for name, doc in GROWING.items()
    )
    gpus = " UNION ALL ".join(
        f"SELECT node, gpu, NULL AS nic, "
        f"concat_ws(' ', node, 'GPU', gpu || ':', {name}, '{words}') AS text "
        f"FROM one_gpu WHERE {name} > 0"
        for name, words in gpu_counters.items()
    )
    nics = " UNION ALL ".join(
        f"SELECT node, NULL, nic, concat_ws(' ', node, nic || ':', {name}, '{words}') "
        f"FROM one_nic WHERE {name} > 0"
        for name, words in nic_counters.items()
    )
    return f"""
        levels AS (
        WITH one_gpu AS (
            FROM gpus WHERE {OF_TEXT} QUALIFY count(*) OVER (PARTITION BY node, gpu) = 1),
        one_nic AS (
            FROM nics WHERE {OF_TEXT} QUALIFY count(*) OVER (PARTITION BY node, nic, port) = 1),
        counters AS ({gpus} UNION ALL {nics}),
        grown AS (
            SELECT node, nic, concat_ws(', ', {grown}) AS text FROM nic_rates
            WHERE {OF_TEXT} GROUP BY node, nic),
        looked AS (
            SELECT node, gpu, count(*) AS looks, median(utilisation) AS busy,
                median(power_w) < coalesce($low_power * max(power_limit_w), $low_watts) AS is_low
            FROM gpus WHERE {OF_TEXT} GROUP BY node, gpu),
        waiting AS (
            SELECT node, count(*) AS gpus, min(looks) AS looks,
                count(*) FILTER (busy >= $busy AND is_low) AS waits,
                list(gpu ORDER BY gpu) FILTER (busy <= $idle) AS idle
            FROM looked GROUP BY node),
        said AS (
            SELECT 'counters' AS kind, * FROM counters
            UNION ALL BY NAME SELECT 'grown' AS kind, node, nic,
                concat_ws(' ', node, nic || ':', text) AS text FROM grown WHERE text <> ''
            UNION ALL BY NAME SELECT 'waiting' AS kind, node, looks,
                waits || ' of ' || gpus || ' GPUs are busy and draw little power, as kernels that '
                || 'wait for others do' || coalesce('; idle: GPU '
                || list_aggregate(idle, 'string_agg', ', '), '') AS text
            FROM waiting WHERE waits >= $mostly * gpus AND gpus > 1
            UNION ALL BY NAME SELECT 'old' AS kind, node, nic,
                concat_ws(' ', suspect || ':', code, place) AS text
            FROM reported_faults WHERE is_old AND NOT is_elsewhere
            UNION ALL BY NAME SELECT 'elsewhere' AS kind, node, text FROM reported_faults
            WHERE is_elsewhere
            UNION ALL BY NAME SELECT 'outlived' AS kind, node, nic,
                concat_ws(' ', suspect || ':', meaning, '(' || place || ')') AS text
            FROM reported_faults WHERE is_outlived AND NOT is_elsewhere
            UNION ALL BY NAME SELECT 'rare' AS kind, node, nic,
                concat_ws(' ', suspect || ':', lines, 'times,', meaning, '(' || place || ')')
                    AS text
            FROM reported_faults WHERE is_rare)
        SELECT {JOB} AS job, kind AS code, node, gpu::VARCHAR AS gpu, nic, looks, text FROM said)
    """
