"""GPUs that report a fault, and GPUs whose clock something holds down."""

from __future__ import annotations

from oncall.analysis.devices.node_events import in_words
from oncall.evidence import Param, relation


@relation(
    "gpu_faults",
    reads=["ranks", "gpu_symptoms", "node_events", "event_meanings"],
    optional=["nvlink_domains"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("rank", "INTEGER", "", "the rank that uses it"),
        ("node", "VARCHAR", "", "its host"),
        ("gpu", "INTEGER", "", "the GPU"),
        ("nic", "VARCHAR", "", "the rank's NIC"),
        ("pci_bus", "VARCHAR", "", "address of the GPU"),
        ("part", "VARCHAR", "", "nvlink; gpu: its own hardware; or clock: it is held down"),
        ("reason", "VARCHAR", "", "of nvlink: down, errors; of gpu: remap, memory, log; of clock: "
         "what holds it; NULL: another"),
        ("at_ns", "BIGINT", "ns", "since when, if known"),
        ("code", "VARCHAR", "", "what it logged first"),
        ("meaning", "VARCHAR", "", "in words"),
        ("action", "VARCHAR", "", "what to do about that"),
        ("fatal", "BOOLEAN", "", "whether the line says that it is fatal"),
        ("nvlink", "INTEGER", "", "the NVLink that it names"),
        ("domain", "VARCHAR", "", "the NVLink domain in which it failed"),
        ("nvlinks_down", "INTEGER", "", "NVLinks that were not up"),
        ("nvlink_errors", "BIGINT", "", "NVLink errors, in all"),
        ("uncorrected", "BIGINT", "", "memory errors that ECC could not correct"),
        ("mhz", "DOUBLE", "MHz", "its clock while it was held down"),
        ("others_mhz", "DOUBLE", "MHz", "the others' clock then"),
        ("temp_c", "DOUBLE", "°C", "its temperature then"),
        ("power_w", "DOUBLE", "W", "its power then"),
    ],
    source="TFD Table 1; NVML clocks event reasons",
    params={
        "nvlink_errors": Param(0.5, "a second: a clean link has none in days"),
        "lasting": Param(
            "15 s", "what lasts less is a start, a checkpoint or a neighbour's burst"
        ),
    },
)  # fmt: skip
def gpu_faults() -> str:
    """Each fault of each rank's GPU, one row for each part of it."""
    meaning = in_words("e", "m.meaning", of_link="m.part = 'nvlink'", fatal="e.fatal")
    return f"""
        WITH placed AS (
            SELECT DISTINCT job, rank, node, gpu, nic, pci_bus FROM ranks WHERE gpu IS NOT NULL),
        firsts AS (
            SELECT node, gpu, m.part, count(*) AS lines, min(at_ns) AS at_ns,
                any_value(domain) AS domain,
                arg_min({{'code': e.code, 'meaning': {meaning}, 'action': m.action,
                    'fatal': e.fatal, 'nvlink': e.nvlink}},
                    (e.fatal IS DISTINCT FROM true, at_ns)) AS first
            FROM node_events e JOIN event_meanings m ON m.code = e.meant
            LEFT JOIN nvlink_domains USING (node)
            WHERE gpu IS NOT NULL AND m.weight = 'fault' AND m.part IN ('gpu', 'nvlink')
            GROUP BY ALL),
        events AS (SELECT * EXCLUDE (first), unnest(first) FROM firsts),
        symptoms AS (
            SELECT *, nvlink_errors_per_s > $nvlink_errors AS nvlink_errs,
                held_ns >= $lasting AND reason = 'hardware' AS held_by_itself,
                held_ns >= $lasting AND reason <> 'hardware' AS held_by_others
            FROM gpu_symptoms),
        nvlink AS (
            SELECT p.*, e.* EXCLUDE (node, gpu, part, lines), g.nvlinks_down, g.nvlink_errors,
                CASE WHEN g.nvlinks_down > 0 THEN 'down' WHEN g.nvlink_errs THEN 'errors' END
                    AS reason
            FROM placed p LEFT JOIN symptoms g USING (node, gpu)
            LEFT JOIN (FROM events WHERE part = 'nvlink') e ON e.node = p.node AND e.gpu = p.gpu
            WHERE g.nvlinks_down > 0 OR g.nvlink_errs OR e.lines > 0),
        clock AS (
            SELECT p.*, g.held_since_ns AS at_ns, g.reason, g.mhz, g.others_mhz, g.temp_c, g.power_w
            FROM placed p JOIN symptoms g USING (node, gpu) WHERE g.held_by_others),
        itself AS (
            SELECT p.*, e.* EXCLUDE (node, gpu, part, lines), g.uncorrected, g.mhz,
                CASE WHEN g.remap_failed THEN 'remap' WHEN g.uncorrected > 0 THEN 'memory'
                    WHEN e.lines > 0 THEN 'log' END AS reason
            FROM placed p LEFT JOIN symptoms g USING (node, gpu)
            LEFT JOIN (FROM events WHERE part = 'gpu') e ON e.node = p.node AND e.gpu = p.gpu
            WHERE g.remap_failed OR g.uncorrected > 0 OR e.lines > 0 OR g.held_by_itself)
        SELECT 'nvlink' AS part, * FROM nvlink
        UNION ALL BY NAME SELECT 'clock' AS part, * FROM clock
        UNION ALL BY NAME SELECT 'gpu' AS part, * FROM itself
    """
