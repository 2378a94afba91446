"""What hosts said, each line with the GPU or NIC that it is about, and what its code means;
and hosts whose GPUs share NVLinks: what fails there together has one cause.
"""

from __future__ import annotations

from oncall.evidence import Param, relation
from oncall.evidence.codes.event_catalogue import MEANINGS, STATED, Advice, Weight, advice_of
from oncall.evidence.codes.nvlink_errors import FATAL, GONE, LINK, REGISTER, REGISTERS


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _advice(code: str, weight: Weight) -> str:
    advice: Advice = advice_of(code, weight)
    return f"{_quoted(advice.action)}, {_quoted(advice.command)}, {advice.there}"


@relation(
    "event_meanings",
    reads=["host_events|hosts|nics|gpus|devices"],
    columns=[
        ("code", "VARCHAR", "", "as in host_events"),
        (
            "part",
            "VARCHAR",
            "",
            "part of a host: gpu, nvlink, nic, pcie, fabric, memory, cpu ...",
        ),
        ("weight", "VARCHAR", "", "fault, warning, program (its own doing) or notice"),
        ("meaning", "VARCHAR", "", "in words"),
        ("action", "VARCHAR", "", "what to do, as a sentence"),
        ("command", "VARCHAR", "", "a command that shows more; NIC, GPU, ... stand for the device"),
        ("is_there", "BOOLEAN", "", "the command is typed on the event's host"),
    ],
    source="NVIDIA Xid catalogue; the kernel's own messages",
)
def event_meanings() -> str:
    """What each code means; an Xid that was seen and is not known is a warning of its GPU."""
    known = ", ".join(
        f"('{code}', '{part}', '{weight}', {_quoted(meaning)}, {_advice(code, weight)})"
        for code, (part, weight, meaning) in MEANINGS.items()
    )
    unknown = advice_of("", "warning")
    return f"""
        WITH known(code, part, weight, meaning, action, command, is_there) AS (VALUES {known}),
        seen AS (
            SELECT code, regexp_replace(code, '^sxid_\\d+$', 'sxid') AS known_as,
                regexp_extract(code, '^xid_(\\d+)$', 1) AS xid
            FROM (SELECT code FROM host_events WHERE code IS NOT NULL UNION SELECT code FROM known))
        SELECT seen.code, coalesce(part, 'gpu') AS part, coalesce(weight, 'warning') AS weight,
            coalesce(meaning, 'Xid ' || xid || ', see the driver''s documentation') AS meaning,
            coalesce(action, {_quoted(unknown.action)}) AS action,
            coalesce(command, {_quoted(unknown.command)}) AS command,
            coalesce(is_there, {unknown.there}) AS is_there
        FROM seen LEFT JOIN known ON known.code = known_as WHERE part IS NOT NULL OR xid <> ''
    """


def _registers() -> str:
    """Kinds of error by the bits of registers, the gravest first."""
    return ", ".join(
        f"({place}, '{one.code}', {one.word}, {one.mask}::UBIGINT, {one.value}::UBIGINT, "
        f"'{one.meant}', {'NULL' if one.fatal is None else one.fatal})"
        for place, one in enumerate(REGISTERS)
    )


def _said() -> str:
    """What texts say beside the code: whether it is fatal, on which NVLink, and what registers
    mean."""
    stated = ", ".join(f"'{code}'" for code in STATED)
    gone = ", ".join(f"'{code}'" for code in GONE)
    return f"""
        registers(place, code, word, mask, value, meant, fatal) AS (VALUES {_registers()}),
        texts AS (
            SELECT DISTINCT code, text, regexp_replace(code, '^sxid_\\d+$', 'sxid') AS known_as,
                lower(regexp_extract(text, '{FATAL}')) AS word,
                regexp_extract_all(text, '{REGISTER}') AS words
            FROM host_events),
        decoded AS (
            SELECT t.code, t.text, arg_min({{'meant': meant, 'fatal': fatal}}, place) AS kind
            FROM texts t JOIN registers r ON r.code = t.code
                AND (try_cast(words[r.word] AS UBIGINT) & mask) = value
            GROUP BY ALL),
        said AS (
            SELECT t.code, t.text,
                CASE WHEN kind IS NOT NULL THEN kind.fatal WHEN t.code IN ({gone}) THEN true
                    WHEN word <> '' THEN NOT starts_with(word, 'non') END AS fatal,
                known_as || CASE fatal WHEN true THEN '_fatal' WHEN false THEN '_nonfatal' END
                    AS stated,
                CASE WHEN kind IS NOT NULL THEN kind.meant WHEN stated IN ({stated}) THEN stated
                    ELSE t.code END AS meant,
                if(meant <> t.code, try_cast(regexp_extract(t.text, '{LINK}', 1) AS INTEGER), NULL)
                    AS nvlink
            FROM texts t LEFT JOIN decoded d
                ON d.code = t.code AND d.text IS NOT DISTINCT FROM t.text)
    """


def in_words(event: str, meaning: str, *, of_link: str, fatal: str) -> str:
    """SQL: the number of an Xid, what its line says of an NVLink beside it, and what it means."""
    number = f"nullif(regexp_extract({event}.code, '^s?xid_[0-9]+$'), '')"
    return f"""concat_ws(': ', nullif(concat_ws(', ',
                replace(replace({number}, 'sxid_', 'SXid '), 'xid_', 'Xid '),
                CASE {of_link} AND {fatal} WHEN true THEN 'fatal' END,
                CASE {of_link} AND NOT {fatal} WHEN true THEN 'not fatal' END,
                'link ' || {event}.nvlink), ''), {meaning})"""


@relation(
    "node_events",
    reads=["host_events|hosts|nics|gpus|devices"],
    columns=[
        "node",
        ("at_ns", "BIGINT", "ns", "when it was logged"),
        "source code",
        ("said_of", "VARCHAR", "", "PCI address, interface or process, as logged"),
        "text path line",
        ("gpu", "INTEGER", "", "the GPU it is about; NULL: none"),
        ("nic", "VARCHAR", "", "the NIC it is about; NULL: none"),
        ("pcie_port", "VARCHAR", "", "the port above that device, or that it is about itself"),
        ("meant", "VARCHAR", "", "its code in event_meanings, by what the line says beside it"),
        ("fatal", "BOOLEAN", "", "whether the line says that it is fatal; NULL: it does not say"),
        ("nvlink", "INTEGER", "", "number of the NVLink, if the line names one"),
    ],
    source="TFD Table 1; NVIDIA Xid catalogue",
)
def node_events() -> str:
    """Each event with its device. Hosts that are watched and said nothing leave no row here,
    which is no lack of evidence."""

    def short(address: str) -> str:
        # A function or the first domain may be left out: 0000:16:00.0 and 16:00 are one device.
        return f"regexp_replace(lower({address}), '^0+:|[.][0-9]$', '', 'g')"

    return f"""
        WITH {_said()}, known AS (
            SELECT node, kind, device, pci_bus, interface, pcie_port,
                -- A switch's downstream port has one device below; what it says is of that link.
                CASE WHEN pcie_path[-1] <> pcie_port THEN pcie_path[-1] END AS own_port
            FROM devices
            QUALIFY row_number() OVER (PARTITION BY node, kind, device ORDER BY at_ns DESC) = 1
            UNION ALL BY NAME
            -- Where devices were not listed, ranks tell their GPU's address.
            SELECT DISTINCT node, 'gpu' AS kind, gpu::VARCHAR AS device, pci_bus FROM ranks r
            WHERE pci_bus IS NOT NULL AND NOT EXISTS (
                FROM devices d WHERE d.node = r.node AND d.kind = 'gpu')),
        addressed AS (
            SELECT node, kind, device, pcie_port,
                unnest([{short("pci_bus")}, {short("own_port")}, {short("interface")}, device])
                    AS called
            FROM known),
        events AS (SELECT *, {short("device")} AS called FROM host_events),
        about AS (
            SELECT e.node, e.at_ns, e.source, e.code, e.device, e.text, e.path, e.line,
                max(a.device) FILTER (a.kind = 'gpu') AS gpu,
                max(a.device) FILTER (a.kind = 'nic') AS nic, max(a.pcie_port) AS above
            FROM events e LEFT JOIN addressed a ON a.node IS NOT DISTINCT FROM e.node
                AND a.called = e.called
            GROUP BY ALL),
        port_paths AS (
            SELECT node, pcie_port, unnest(coalesce(pcie_path, [pcie_port])) AS port
            FROM devices WHERE pcie_port IS NOT NULL),
        ports AS (  -- a root port above several switches is none of them
            SELECT node, port, if(min(pcie_port) = max(pcie_port), min(pcie_port), port)
                AS pcie_port
            FROM port_paths GROUP BY node, port)
        SELECT a.* EXCLUDE (device, gpu), a.device AS said_of, try_cast(gpu AS INTEGER) AS gpu,
            coalesce(above, p.pcie_port) AS pcie_port, s.meant, s.fatal, s.nvlink
        FROM about a LEFT JOIN ports p ON p.node = a.node AND p.port = a.device
        JOIN said s ON s.code IS NOT DISTINCT FROM a.code AND s.text IS NOT DISTINCT FROM a.text
    """


@relation(
    "nvlink_domains",
    reads=["node_events", "event_meanings"],
    columns=[
        ("node", "VARCHAR", "", "a host of the domain; NULL: the text does not name it"),
        ("domain", "VARCHAR", "", "the NVLink domain, as recorded or by its first host"),
    ],
    source="NVIDIA IMEX guide: an NVLink domain spans the hosts of one cluster UUID and clique",
    params={
        "together": Param("2 s", "stamps are whole seconds, and clocks differ by less than one"),
    },
)
def nvlink_domains() -> str:
    """The domain of each host with a GPU fault, where NVLinks fail in it.

    A domain is a host, or the hosts of one clique. Where no clique is recorded, hosts whose faults
    are of the same moment are taken to be one domain.
    """
    return """
        WITH RECURSIVE recorded AS (
            SELECT node, min(domain) AS clique FROM (
                SELECT node, nvlink_domain AS domain FROM devices
                UNION ALL
                SELECT node, text FROM log_events WHERE kind = 'net' AND code = 'clique')
            WHERE node IS NOT NULL AND domain IS NOT NULL GROUP BY node),
        failing AS (
            SELECT coalesce(e.node, '') AS node, at_ns, part <> 'gpu' AS of_link, clique
            FROM node_events e JOIN event_meanings m ON m.code = e.meant
            LEFT JOIN recorded r ON r.node = e.node
            WHERE part IN ('nvlink', 'fabric') OR (part = 'gpu' AND weight = 'fault')),
        moments AS (
            SELECT *, count(*) FILTER (apart) OVER (
                ORDER BY at_ns ROWS UNBOUNDED PRECEDING) AS moment
            FROM (SELECT *, at_ns - lag(at_ns) OVER (ORDER BY at_ns) > $together AS apart
                FROM failing WHERE at_ns IS NOT NULL)),
        cliques AS (
            SELECT *, coalesce(clique, if(min(clique) OVER one = max(clique) OVER one,
                min(clique) OVER one, NULL)) AS of_moment, min(node) OVER one AS first
            FROM moments WINDOW one AS (PARTITION BY moment)),
        -- Names of recorded cliques come before those of hosts.
        named AS (
            SELECT DISTINCT node, coalesce('0' || of_moment, '1' || first) AS name FROM cliques
            UNION SELECT node, coalesce('0' || clique, '1' || node) FROM failing),
        joined AS (
            FROM named UNION
            SELECT j.node, b.name FROM joined j JOIN named a USING (name)
            JOIN named b ON b.node = a.node),
        placed AS (
            SELECT node, bool_or(of_link) AS of_link,
                'NVLinks of ' || coalesce(any_value(clique), min(name)[2:]) AS domain
            FROM failing JOIN joined USING (node) GROUP BY node)
        SELECT nullif(node, '') AS node, domain FROM placed
        QUALIFY bool_or(of_link) OVER (PARTITION BY domain)
    """
