"""What hosts report as text: each device's fault with its rank, and whether it is fatal."""

from __future__ import annotations

from oncall.analysis.devices.node_events import in_words
from oncall.evidence import Param, relation

_ADDRESS = r"\d+[.]\d+[.]\d+[.]\d+"
_NAME = f"regexp_extract(lower({{}}), '^({_ADDRESS}|[^.]+)', 1)"


def is_same_host(one: str, other: str) -> str:
    """True unless the columns have different names."""
    return f"coalesce({_NAME.format(one)} = {_NAME.format(other)}, true)"


# SQL: the one job that the text is about
JOB = "coalesce((SELECT min(job) FROM recordings), (SELECT min(job) FROM ranks), 'job')"
# SQL: what is said of all GPUs of a host
_OF_HOST = (
    "'host_throttled', 'gpu_missing', 'gpus_absent', 'driver_down', 'driver_mismatch', "
    "'nvml_failed'"
)
_SHORT = "regexp_replace(lower({}), '^0+:|[.][0-9]$', '', 'g')"


def _reported() -> str:
    """What is reported of each device, in its order, and whether links came up again."""
    return """
        began AS (
            SELECT min(at_ns) - $before AS at_ns FROM (
                SELECT at_ns FROM log_events UNION ALL SELECT at_ns FROM logged_steps
                UNION ALL SELECT at_ns FROM watchdog_reports)),
        reported AS (
            SELECT s.* EXCLUDE (gpu), s.gpu AS place_of_gpu, m.weight, m.meaning, m.action,
                m.command, m.is_there,
                if(m.part = 'nvlink', 'gpu', m.part) AS part, m.part = 'nvlink' AS of_link,
                starts_with(s.code, 'sxid') AS of_switch,
                row_number() OVER (PARTITION BY s.node
                    ORDER BY s.at_ns NULLS FIRST, s.path, s.line) AS nth
            FROM reported_states s JOIN event_meanings m ON m.code = s.meant
            WHERE coalesce(s.text, '') NOT LIKE '%caused by previous Xid%'),
        links AS (
            SELECT node AS home, said_of AS link,
                arg_max(code, nth) IN ('link_up', 'storage_answers') AS is_up
            FROM reported
            WHERE code IN ('link_up', 'link_down', 'storage_answers', 'storage_stalled')
            GROUP BY ALL)
    """


def _without_consequences() -> str:
    """The same without what only shows another device's fault; and whether an error of a link
    follows from the fault of what is at its end."""
    return """
        -- A link fails at both ends. It is the fault of a GPU that reports one of its own, or whose
        -- links alone fail, else of the switch.
        hosts AS (
            SELECT node, bool_or(NOT of_link) AS of_gpu, bool_or(of_switch) AS of_switch,
                count(DISTINCT said_of) FILTER (NOT of_switch) AS gpus
            FROM reported WHERE part = 'gpu' AND weight = 'fault' GROUP BY node),
        own AS (
            SELECT t.*, t.of_link AND CASE WHEN h.of_gpu THEN true WHEN h.gpus = 1 THEN t.of_switch
                ELSE h.of_switch AND NOT t.of_switch END AS follows
            FROM reported t LEFT JOIN hosts h ON h.node IS NOT DISTINCT FROM t.node
            WHERE t.weight <> 'notice'
                AND NOT (t.part = 'gpu' AND t.weight = 'program' AND h.of_gpu IS NOT NULL)
                -- A task that waits for a file server.
                AND NOT (t.code = 'hung_task' AND EXISTS (FROM reported s
                    WHERE s.code = 'storage_stalled' AND s.node IS NOT DISTINCT FROM t.node)))
    """


def _devices() -> str:
    """Each device once, with the first of its gravest codes."""
    return """
        reported_devices AS (
            SELECT node, part, coalesce(place_of_gpu::VARCHAR, said_of) AS device,
                any_value(said_of) AS said_of, any_value(place_of_gpu) AS place_of_gpu,
                any_value(nic) AS nic, count(*) AS lines,
                min(at_ns) AS at_ns, max(at_ns) AS last_ns,
                arg_min({'code': code, 'weight': weight, 'meaning': meaning, 'action': action,
                    'command': command, 'is_there': is_there, 'of_link': of_link,
                    'fatal': if(follows, false, fatal), 'stated': fatal, 'nvlink': nvlink,
                    'path': path, 'line': line, 'text': text},
                    (list_position(['fault', 'warning', 'program'], weight),
                        coalesce(follows, false), fatal IS DISTINCT FROM true, nth)) AS first
            FROM own GROUP BY ALL)
    """


def _command() -> str:
    """The command of a code, with what the event is about in place of words in capitals; typed on
    its host, where that is known."""
    command, device = "first.command", "split_part(said_of, '/', 1)"
    for word, value in {
        "NIC": f"coalesce(nic, {device})",
        "GPU": "coalesce(said_of, place_of_gpu::VARCHAR)",
        "ADDRESS": device,
        "PID": device,
        "NODE": "node",
    }.items():
        safe = f"regexp_extract({value}, '^[A-Za-z0-9][A-Za-z0-9_.:-]*$')"
        command = (
            f"regexp_replace({command}, '\\b{word}\\b', coalesce(nullif({safe}, ''), '{word}'))"
        )
    host = "regexp_extract(node, '^[A-Za-z0-9][A-Za-z0-9.-]*$')"
    return f"if(first.is_there, coalesce('ssh ' || nullif({host}, '') || ' ', ''), '') || {command}"


def _placed() -> str:
    """Each device with the rank that uses it, and how the job ended."""
    gpu, pci = _SHORT.format("c.said_of"), _SHORT.format("r.pci_bus")
    return rf"""
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
        job_hosts AS (
            SELECT node FROM ranks WHERE node IS NOT NULL
            UNION SELECT node FROM log_events WHERE node IS NOT NULL
            UNION SELECT node FROM watchdog_reports WHERE node IS NOT NULL),
        outcome AS (
            SELECT (SELECT at_ns FROM began) AS began_ns,
                (SELECT count(DISTINCT rank) FROM ranks WHERE node IS NOT NULL)
                    >= (SELECT max(world_size) FROM jobs) AS is_placed,
                (SELECT coalesce(bool_and(finished), false) FROM log_progress)
                    AND NOT EXISTS (FROM log_causes WHERE NOT outlived) AS ended_well),
        -- Hosts are alike: where the host is unknown, several ranks have a GPU at that address.
        placed AS (
            SELECT DISTINCT * REPLACE (CASE WHEN node IS NOT NULL
                OR min(rank) OVER one = max(rank) OVER one THEN rank END AS rank),
                starts_with(first.code, 'sxid') AS of_switch,
                EXISTS (FROM job_hosts j WHERE {is_same_host("j.node", "candidates.node")})
                    AS is_known
            FROM candidates WINDOW one AS (PARTITION BY node, part, device))
    """


@relation(
    "reported_faults",
    reads=["reported_states", "event_meanings"],
    columns=[
        "job",
        ("suspect", "VARCHAR", "", "host and device, in words"),
        "node",
        ("rank", "INTEGER", "", "the rank that uses the GPU, or was the process"),
        ("gpu", "VARCHAR", "", "PCI address of a GPU, else its index"),
        ("nic", "VARCHAR", "", "RDMA device, interface or PCI address of a NIC"),
        ("part", "VARCHAR", "", "gpu, fabric, nic, pcie, memory, cpu, process, storage or host"),
        "weight",
        ("code", "VARCHAR", "", "the first and gravest of the device's codes"),
        "meaning action",
        ("command", "VARCHAR", "", "what to type next"),
        ("lines", "BIGINT", "", "how often it was said"),
        ("at_ns", "BIGINT", "ns", "when first"),
        ("place", "VARCHAR", "", "file and line"),
        ("text", "VARCHAR", "", "what it says"),
        (
            "fatal",
            "BOOLEAN",
            "",
            "of a GPU: whether its text says that it is fatal; false of a link's error that "
            "follows from the fault of what is at its end",
        ),
        ("nvlink", "INTEGER", "", "the NVLink that the text names"),
        ("domain", "VARCHAR", "", "the NVLink domain in which it failed"),
        ("is_up", "BOOLEAN", "", "of a link: it came up again; of storage: it answers again"),
        ("is_alone", "BOOLEAN", "", "of a port: no other host's ports are known"),
        ("is_unnamed", "BOOLEAN", "", "the logs state a cause, and no recording names the host"),
        ("is_known", "BOOLEAN", "", "the job is known to run on that host"),
        ("is_old", "BOOLEAN", "", "it ended long before the job's first line"),
        ("is_outlived", "BOOLEAN", "", "the device works on, and the job went on to a normal end"),
        ("is_elsewhere", "BOOLEAN", "", "of a scheduler's node: the job is not known to run there"),
        ("is_rare", "BOOLEAN", "", "errors that were corrected, and few of them"),
    ],
    source="NVIDIA Xid catalogue; kernel messages; states that tools print",
    params={
        "before": Param("1 d", "before the job's first line: zones may differ by half a day"),
        "rare": Param(10, "corrected errors of a device: mcelog retires a page at so many a day"),
    },
)
def reported_faults() -> str:
    """Each faulty device once, with its gravest code. What programs did on a host with a faulty GPU
    has no row."""
    return f"""
        WITH {_reported()}, {_without_consequences()}, {_devices()}, {_placed()}
        SELECT {JOB} AS job, concat_ws(' ', if(part = 'host', NULL, node), CASE part
                WHEN 'gpu' THEN if(first.code IN ({_OF_HOST}), 'GPUs',
                    if(of_switch, 'NVSwitch ', 'GPU ') || coalesce(said_of, '?')
                    || coalesce(' (index ' || nullif(place_of_gpu::VARCHAR, said_of) || ')', ''))
                WHEN 'fabric' THEN if(node IS NULL, 'the NVLink fabric', 'NVLink fabric')
                WHEN 'host' THEN coalesce(first.text, 'out of use')
                WHEN 'process' THEN coalesce('process ' || said_of, 'a process')
                ELSE coalesce(nic, said_of, 'the host') END) AS suspect,
            node, rank, if(part = 'gpu' AND NOT of_switch, said_of, NULL) AS gpu,
            if(part = 'nic', coalesce(nic, said_of), NULL) AS nic, part, first.weight,
            first.code,
            {in_words("first", "first.meaning", of_link="first.of_link", fatal="first.stated")}
                AS meaning, first.action, {_command()} AS command,
            lines, p.at_ns,
            split_part(first.path, '/', -1) || ':' || first.line AS place, first.text,
            if(part = 'gpu', first.fatal, NULL) AS fatal, first.nvlink,
            if(part IN ('gpu', 'fabric'), d.domain, NULL) AS domain,
            coalesce(l.is_up, false) AS is_up,
            first.code = 'port_down' AND (SELECT count(DISTINCT node) < 2 FROM nics) AS is_alone,
            NOT is_known AND p.node IS NOT NULL AND EXISTS (FROM log_causes WHERE NOT outlived)
                AS is_unnamed,
            is_known,
            coalesce(p.last_ns < began_ns, false) AS is_old,
            NOT is_old AND (first.weight = 'warning' OR is_up) AND ended_well AS is_outlived,
            part = 'host' AND NOT is_known
                AND (first.weight = 'warning' OR coalesce(is_placed, false)) AS is_elsewhere,
            NOT (is_old OR is_outlived) AND lines < $rare
                AND first.code IN ('aer_corrected', 'edac_corrected', 'machine_check_logged')
                  AS is_rare
        FROM placed p CROSS JOIN outcome LEFT JOIN links l
            ON l.home IS NOT DISTINCT FROM p.node AND l.link IS NOT DISTINCT FROM p.said_of
        LEFT JOIN (SELECT node AS host, domain FROM nvlink_domains) d
            ON d.host IS NOT DISTINCT FROM p.node
    """
