"""What a single snapshot of a host shows, where nothing says whether it is a fault."""

from __future__ import annotations

from oncall.analysis.faults.reported_faults import JOB
from oncall.analysis.faults.reported_states import OF_TEXT
from oncall.evidence import Param, relation

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


@relation(
    "reported_levels",
    reads=["host_events|gpus|nics"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        (
            "kind",
            "VARCHAR",
            "",
            "counters; grown: between two snapshots; waiting: GPUs busy at little power; old; "
            "outlived; rare; elsewhere: nodes out of use",
        ),
        ("node", "VARCHAR", "", "host"),
        ("gpu", "INTEGER", "", "index of a GPU"),
        ("nic", "VARCHAR", "", "a NIC"),
        ("looks", "BIGINT", "", "of waiting: readings of each GPU"),
        ("text", "VARCHAR", "", "in words"),
    ],
    source="text of hosts",
    params={
        "busy": Param("90 %", "of the time a kernel ran: NCCL's own kernels spin while they wait"),
        "idle": Param("5 %", "of the time: nothing was launched there"),
        "low_power": Param("35 %", "of the limit: kernels that compute take more"),
        "low_watts": Param(200, "where no limit is listed: as much as 35 % of most GPUs' limits"),
        "most": "machine_symptoms.mostly",
    },
)
def reported_levels() -> str:
    """What a single snapshot shows and cannot judge."""
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
            FROM waiting WHERE waits >= $most * gpus AND gpus > 1
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
        SELECT {JOB} AS job, kind, node, gpu, nic, looks, text FROM said
    """
