"""PCIe links between GPU and NIC: the NIC's side by its counters, the GPU's by NVML."""

from __future__ import annotations

from oncall.evidence import Param, relation


@relation(
    "pcie_faults",
    reads=["ranks", "nic_symptoms", "gpu_symptoms", "node_events", "event_meanings"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("rank", "INTEGER", "", "the rank that uses the pair"),
        ("node", "VARCHAR", "", "its host"),
        ("gpu", "INTEGER", "", "its GPU"),
        ("nic", "VARCHAR", "", "its NIC"),
        ("pci_bus", "VARCHAR", "", "address of the GPU"),
        ("pcie_port", "VARCHAR", "", "the port above the NIC"),
        ("nic_narrow", "BOOLEAN", "", "the NIC's link has less bandwidth than those of others"),
        ("nic_share", "DOUBLE", "ratio", "of its maximum"),
        ("nic_errs", "BOOLEAN", "", "the NIC counts errors of its link"),
        ("pcie_errors_per_s", "DOUBLE", "1/s", "these"),
        ("stalls", "BOOLEAN", "", "the NIC waits for host memory far more often than others"),
        ("pcie_waiting", "DOUBLE", "ratio", "share of time that it waits"),
        ("pcie_stalls_per_s", "DOUBLE", "1/s", "how often it waits"),
        ("gpu_narrow", "BOOLEAN", "", "the GPU's link has less bandwidth than those of others"),
        ("gpu_share", "DOUBLE", "ratio", "of its maximum"),
        ("gpu_errs", "BOOLEAN", "", "the GPU repeats packets"),
        ("replays_per_s", "DOUBLE", "1/s", "how many"),
        ("port_logged", "BOOLEAN", "", "the port's own errors were logged more than once"),
    ],
    source="TFD Table 1, 4.2",
    params={
        "narrow": Param(
            "80 %",
            "of the bandwidth of the other nodes' PCIe links: a lane group or a generation less "
            "is half or less",
        ),
        "errors": Param(
            1,
            "a second: a link that errs so often repeats all the time; a corrected error a day is "
            "ordinary",
        ),
    },
)
def pcie_faults() -> str:
    """Each rank whose GPU's or NIC's PCIe link is narrow, errs or stalls."""
    return """
        WITH placed AS (
            SELECT DISTINCT job, rank, node, gpu, nic, pci_bus FROM ranks WHERE gpu IS NOT NULL),
        nic_side AS (
            SELECT * EXCLUDE (rank, gpu),
                pcie_share < $narrow * median(pcie_share) OVER () AS narrow,
                pcie_errors_per_s > $errors AS erring
            FROM nic_symptoms),
        gpu_side AS (
            SELECT *, pcie_share < $narrow * median(pcie_share) OVER () AS narrow,
                replays_per_s > $errors AS erring
            FROM gpu_symptoms),
        logged AS (
            SELECT node, pcie_port FROM node_events JOIN event_meanings m USING (code)
            WHERE m.part = 'pcie' AND gpu IS NULL AND nic IS NULL AND pcie_port IS NOT NULL
            GROUP BY ALL HAVING count(*) > 1)
        SELECT p.*, s.pcie_port, s.narrow AS nic_narrow, s.pcie_share AS nic_share,
            s.erring AS nic_errs, s.pcie_errors_per_s, s.pcie_stalled AS stalls, s.pcie_waiting,
            s.pcie_stalls_per_s, g.narrow AS gpu_narrow, g.pcie_share AS gpu_share,
            g.erring AS gpu_errs, g.replays_per_s, l.node IS NOT NULL AS port_logged
        FROM placed p LEFT JOIN nic_side s USING (node, nic) LEFT JOIN gpu_side g USING (node, gpu)
        LEFT JOIN logged l ON l.node = p.node AND l.pcie_port = s.pcie_port
        WHERE s.narrow OR s.erring OR s.pcie_stalled OR g.narrow OR g.erring
    """
