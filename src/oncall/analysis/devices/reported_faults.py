"""What hosts report as text: each device's fault with its rank, without what follows from it.

Lines and states mean what the table of codes says. Counters of a snapshot have no known beginning:
only what grew between two of them is a fault.
"""

from __future__ import annotations

from oncall.analysis.common.same_host import is_same_host
from oncall.evidence import Param, relation
from oncall.evidence.codes.throttle_reasons import POWER_CAP, REASONS, THROTTLING

_TEXT = "EXISTS (FROM recordings WHERE kind IN ('host_text', 'port_counters'))"
_JOB = "coalesce((SELECT min(job) FROM recordings), (SELECT min(job) FROM ranks), 'job')"
_SHORT = "regexp_replace(lower({}), '^0+:|[.][0-9]$', '', 'g')"
_HELD = THROTTLING & ~POWER_CAP
_REASONS = ", ".join(
    f"if(reasons & {bit} > 0, '{name}', NULL)" for bit, name in REASONS.items() if bit & THROTTLING
)
_DEVICE_COLUMNS = "node, at_ns, code, said_of, gpu, nic, path, line, text"


@relation(
    "reported_states",
    reads=["host_events|gpus|nics"],
    optional=[
        *("node_events", "gpu_states", "nic_rates", "devices", "recordings", "nics", "log_events"),
    ],
    columns=[
        ("node", "VARCHAR", "", "host, if the text names it"),
        ("at_ns", "BIGINT", "ns", "when, if the text states it"),
        ("code", "VARCHAR", "", "as in event_meanings"),
        ("said_of", "VARCHAR", "", "PCI address, interface, RDMA device or process"),
        ("gpu", "INTEGER", "", "index of the GPU it is about"),
        ("nic", "VARCHAR", "", "the NIC it is about"),
        ("path", "VARCHAR", "", "the file; NULL: found by comparing two"),
        ("line", "BIGINT", "", "its line"),
        ("text", "VARCHAR", "", "what it says"),
    ],
    source="text of hosts",
    params={
        "siblings": Param(
            3,
            "ports of the same host that are up, for the only one that is down to be meant, if no "
            "other host has the same one down and nobody disabled it; second ports of adapters "
            "are compared with second ports: often none of them is cabled",
        ),
        "throttled": Param("50 %", "of a GPU's readings; a moment of it is no loss"),
        "capped": Param(
            "50 %", "of a host's GPUs at their power limit: under load all are, and none is odd"
        ),
        "together": Param(
            "75 %", "of a host's GPUs, for the same reason: its supply or cooling, not a GPU's"
        ),
        "others": Param(2, "hosts that list more GPUs, for one with fewer to have lost some"),
    },
)
def reported_states() -> str:
    """What lines say, and what snapshots or hosts show together: since when, they do not."""
    return f"""
        WITH up AS (
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
                    AND m.node IS NOT DISTINCT FROM e.node))),
        grown AS (
            SELECT node, 'ecc_grew' AS code, gpu::VARCHAR AS said_of, gpu,
                ecc_uncorrected || ' uncorrectable errors since the snapshot before' AS text
            FROM gpu_states WHERE ecc_uncorrected > 0 AND {_TEXT}
            UNION ALL BY NAME SELECT node, 'nvlink_grew' AS code, gpu::VARCHAR AS said_of,
                gpu, nvlink_errors || ' NVLink errors since the snapshot before' AS text
            FROM gpu_states WHERE nvlink_errors > 0 AND {_TEXT}
            UNION ALL BY NAME SELECT node, 'link_down' AS code, nic AS said_of, nic,
                'its link went down ' || link_downs || ' times since the snapshot before' AS text
            FROM nic_rates WHERE link_downs > 0 AND {_TEXT}),
        counts AS (
            SELECT node, count(DISTINCT device) AS gpus FROM devices
            WHERE kind = 'gpu' AND {_TEXT} GROUP BY node),
        common AS (SELECT mode(gpus) AS gpus FROM counts HAVING count(*) > $others),
        clocked AS (
            SELECT node, gpu, bit_or(throttle_reasons) & {THROTTLING} AS reasons,
                avg((throttle_reasons & {_HELD} > 0)::INT) AS held,
                avg((throttle_reasons & {POWER_CAP} > 0)::INT) >= $throttled AS is_capped,
                median(sm_clock_mhz)::BIGINT AS mhz, max(sm_clock_max_mhz) AS most_mhz
            FROM gpus WHERE throttle_reasons IS NOT NULL AND {_TEXT} GROUP BY node, gpu),
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
            QUALIFY held >= $throttled OR (is_capped AND count(*) OVER host > 1
                AND count(*) FILTER (is_capped) OVER host < $capped * count(*) OVER host)),
        throttled AS (
            FROM held_down WINDOW alike AS (PARTITION BY node, reasons)
            QUALIFY count(*) OVER alike <= $others
                OR count(*) OVER alike < $together * of_gpus),
        hosts_throttled AS (
            SELECT node, 'host_throttled' AS code, arg_min(text, gpu) || ' (' || count(*)
                || ' of ' || any_value(of_gpus) || ' GPUs)' AS text
            FROM held_down ANTI JOIN throttled t ON t.node IS NOT DISTINCT FROM held_down.node
                AND t.gpu IS NOT DISTINCT FROM held_down.gpu
            GROUP BY node, reasons),
        fewer AS (
            SELECT node, 'gpu_missing' AS code,
                c.gpus || ' GPUs are listed, on most hosts ' || u.gpus AS text
            FROM counts c JOIN common u ON c.gpus < u.gpus)
        SELECT {_DEVICE_COLUMNS} FROM (
            FROM lines UNION ALL BY NAME FROM grown UNION ALL BY NAME FROM fewer
            UNION ALL BY NAME FROM throttled UNION ALL BY NAME FROM hosts_throttled)
    """


@relation(
    "reported_faults",
    reads=["reported_states", "event_meanings"],
    optional=[
        *("ranks", "devices", "log_events", "logged_steps", "watchdog_reports", "recordings"),
        *("nics", "log_progress", "log_causes"),
    ],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("suspect", "VARCHAR", "", "host and device, in words"),
        ("node", "VARCHAR", "", "host"),
        ("rank", "INTEGER", "", "the rank that uses the GPU, or was the process"),
        ("gpu", "VARCHAR", "", "PCI address of a GPU, else its index"),
        ("nic", "VARCHAR", "", "RDMA device, interface or PCI address of a NIC"),
        ("part", "VARCHAR", "", "gpu, fabric, nic, pcie, memory, cpu, process or storage"),
        ("weight", "VARCHAR", "", "fault, warning or program"),
        ("code", "VARCHAR", "", "the first and gravest of the device's codes"),
        ("meaning", "VARCHAR", "", "in words"),
        ("action", "VARCHAR", "", "what to do"),
        ("lines", "BIGINT", "", "how often it was said"),
        ("at_ns", "BIGINT", "ns", "when first"),
        ("place", "VARCHAR", "", "file and line"),
        ("text", "VARCHAR", "", "what it says"),
        ("is_up", "BOOLEAN", "", "of a link: it came up again; of storage: it answers again"),
        ("is_alone", "BOOLEAN", "", "of a port: no other host's ports are known"),
        ("is_old", "BOOLEAN", "", "it ended long before the job's first line"),
        ("is_outlived", "BOOLEAN", "", "the device works on, and the job went on to a normal end"),
    ],
    source="NVIDIA Xid catalogue; kernel messages; states that tools print",
    params={
        "before": Param(
            "1 d", "before the job's first line: zones of two texts may differ by half a day"
        ),
    },
)
def reported_faults() -> str:
    """Each faulty device once, with its gravest code; what follows from another has no row."""
    gpu, pci = _SHORT.format("c.said_of"), _SHORT.format("r.pci_bus")
    return rf"""
        WITH began AS (
            SELECT min(at_ns) - $before AS at_ns FROM (
                SELECT at_ns FROM log_events UNION ALL SELECT at_ns FROM logged_steps
                UNION ALL SELECT at_ns FROM watchdog_reports)),
        reported AS (
            SELECT s.* EXCLUDE (gpu), s.gpu AS place_of_gpu, m.weight, m.meaning, m.action,
                if(m.part = 'nvlink', 'gpu', m.part) AS part, m.part = 'nvlink' AS of_link,
                row_number() OVER (PARTITION BY s.node
                    ORDER BY s.at_ns NULLS FIRST, s.path, s.line) AS nth
            FROM reported_states s JOIN event_meanings m USING (code)
            WHERE s.text NOT LIKE '%caused by previous Xid%'),
        links AS (
            SELECT node, said_of, arg_max(code, nth) IN ('link_up', 'storage_answers') AS is_up
            FROM reported
            WHERE code IN ('link_up', 'link_down', 'storage_answers', 'storage_stalled')
            GROUP BY ALL),
        roots AS (
            SELECT node, min(nth) AS nth, arg_min(code, nth) AS code,
                bool_or(NOT starts_with(code, 'sxid')) AS of_gpu
            FROM reported WHERE part = 'gpu' AND weight = 'fault' GROUP BY node),
        -- What a GPU's first fault brings about on the other GPUs and the switches of its host.
        own AS (
            SELECT t.* FROM reported t LEFT JOIN roots r ON r.node IS NOT DISTINCT FROM t.node
            WHERE t.weight <> 'notice' AND NOT coalesce(
                (t.part = 'gpu' AND t.weight = 'program')
                OR (starts_with(t.code, 'sxid') AND r.of_gpu)
                OR (t.of_link AND t.nth > r.nth AND t.code <> r.code)
                -- A task that waits for a file server.
                OR (t.code = 'hung_task' AND EXISTS (FROM reported s
                    WHERE s.code = 'storage_stalled'
                        AND s.node IS NOT DISTINCT FROM t.node)), false)),
        own_and_programs AS (
            FROM own UNION ALL SELECT t.* FROM reported t WHERE part = 'gpu' AND weight = 'program'
                AND NOT EXISTS (FROM roots r WHERE r.node IS NOT DISTINCT FROM t.node)),
        reported_devices AS (
            SELECT node, part, coalesce(place_of_gpu::VARCHAR, said_of) AS device,
                any_value(said_of) AS said_of, any_value(place_of_gpu) AS place_of_gpu,
                any_value(nic) AS nic, count(*) AS lines,
                min(at_ns) AS at_ns, max(at_ns) AS last_ns,
                arg_min({{'code': code, 'weight': weight, 'meaning': meaning, 'action': action,
                    'path': path, 'line': line, 'text': text}},
                    (list_position(['fault', 'warning', 'program'], weight), nth)) AS first
            FROM own_and_programs GROUP BY ALL),
        pids AS (
            SELECT pid::VARCHAR AS pid, rank, max(node) AS node FROM (
                SELECT pid, node, rank FROM log_events WHERE kind = 'exit'
                UNION ALL SELECT pid, node, rank FROM ranks)
            WHERE rank IS NOT NULL GROUP BY ALL),
        candidates AS (
            SELECT c.*, coalesce(r.rank, p.rank) AS rank FROM reported_devices c
            LEFT JOIN ranks r ON c.part = 'gpu' AND {pci} = {gpu}
                AND {is_same_host("r.node", "c.node")}
            -- An Xid names the process that used the GPU.
            LEFT JOIN pids p ON p.pid = CASE c.part WHEN 'process' THEN c.said_of
                    WHEN 'gpu' THEN regexp_extract(c.first.text, '\bpid=''?(\d+)', 1) END
                AND {is_same_host("p.node", "c.node")}),
        outcome AS (
            SELECT (SELECT at_ns FROM began) AS began_ns,
                (SELECT coalesce(bool_and(finished), false) FROM log_progress)
                    AND NOT EXISTS (FROM log_causes WHERE NOT outlived) AS ended_well),
        -- Hosts are alike: where the host is unknown, several ranks have a GPU at that address.
        placed AS (
            SELECT DISTINCT * REPLACE (CASE WHEN node IS NOT NULL
                OR min(rank) OVER one = max(rank) OVER one THEN rank END AS rank),
                starts_with(first.code, 'sxid') AS of_switch
            FROM candidates WINDOW one AS (PARTITION BY node, part, device))
        SELECT {_JOB} AS job, concat_ws(' ', node, CASE part
                WHEN 'gpu' THEN if(first.code = 'host_throttled', 'GPUs',
                    if(of_switch, 'NVSwitch ', 'GPU ') || coalesce(said_of, '?')
                    || coalesce(' (index ' || nullif(place_of_gpu::VARCHAR, said_of) || ')', ''))
                WHEN 'fabric' THEN if(node IS NULL, 'the NVLink fabric', 'NVLink fabric')
                WHEN 'process' THEN coalesce('process ' || said_of, 'a process')
                ELSE coalesce(nic, said_of, 'the host') END) AS suspect,
            node, rank, if(part = 'gpu' AND NOT of_switch, said_of, NULL) AS gpu,
            if(part = 'nic', coalesce(nic, said_of), NULL) AS nic, part, first.weight,
            first.code, CASE
                WHEN starts_with(first.code, 'xid_') THEN 'Xid ' || first.code[5:] || ': '
                WHEN starts_with(first.code, 'sxid_') THEN 'SXid ' || first.code[6:] || ': '
                ELSE '' END || first.meaning AS meaning, first.action, lines, p.at_ns,
            split_part(first.path, '/', -1) || ':' || first.line AS place, first.text,
            coalesce(l.is_up, false) AS is_up,
            first.code = 'port_down' AND (SELECT count(DISTINCT node) < 2 FROM nics) AS is_alone,
            coalesce(p.last_ns < began_ns, false) AS is_old,
            NOT is_old AND (first.weight = 'warning' OR is_up) AND ended_well AS is_outlived
        FROM placed p CROSS JOIN outcome LEFT JOIN links l USING (node, said_of)
    """


@relation(
    "reported_levels",
    reads=["host_events|gpus|nics"],
    optional=["gpus", "nics", "recordings", "ranks", "reported_faults"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("kind", "VARCHAR", "", "counters; waiting: GPUs busy at little power; old; or outlived"),
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
        "most": Param("50 %", "of the host's GPUs are busy at little power"),
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
        "link_errors": "symbol and CRC errors",
        "pause_storms": "pause storms",
    }
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
            FROM gpus WHERE {_TEXT} QUALIFY count(*) OVER (PARTITION BY node, gpu) = 1),
        one_nic AS (
            FROM nics WHERE {_TEXT} QUALIFY count(*) OVER (PARTITION BY node, nic, port) = 1),
        counters AS ({gpus} UNION ALL {nics}),
        looked AS (
            SELECT node, gpu, count(*) AS looks, median(utilisation) AS busy,
                median(power_w) < coalesce($low_power * max(power_limit_w), $low_watts) AS is_low
            FROM gpus WHERE {_TEXT} GROUP BY node, gpu),
        waiting AS (
            SELECT node, count(*) AS gpus, min(looks) AS looks,
                count(*) FILTER (busy >= $busy AND is_low) AS waits,
                list(gpu ORDER BY gpu) FILTER (busy <= $idle) AS idle
            FROM looked GROUP BY node),
        said AS (
            SELECT 'counters' AS kind, * FROM counters
            UNION ALL BY NAME SELECT 'waiting' AS kind, node, looks,
                waits || ' of ' || gpus || ' GPUs are busy and draw little power, as kernels that '
                || 'wait for others do' || coalesce('; idle: GPU '
                || list_aggregate(idle, 'string_agg', ', '), '') AS text
            FROM waiting WHERE waits >= $most * gpus AND gpus > 1
            UNION ALL BY NAME SELECT 'old' AS kind, node, nic,
                concat_ws(' ', suspect || ':', code, place) AS text
            FROM reported_faults WHERE is_old
            UNION ALL BY NAME SELECT 'outlived' AS kind, node, nic,
                concat_ws(' ', suspect || ':', meaning, '(' || place || ')') AS text
            FROM reported_faults WHERE is_outlived)
        SELECT {_JOB} AS job, kind, node, gpu, nic, looks, text FROM said
    """
