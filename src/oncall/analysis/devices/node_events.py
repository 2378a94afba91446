"""What hosts said, each line with the GPU or NIC that it is about."""

from __future__ import annotations

from oncall.evidence import relation
from oncall.evidence.codes.event_catalogue import STATED
from oncall.evidence.codes.nvlink_errors import FATAL, GONE, LINK, REGISTER, REGISTERS


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
    optional=["ranks"],
    columns=[
        ("node", "VARCHAR", "", "host"),
        ("at_ns", "BIGINT", "ns", "when it was logged"),
        ("source", "VARCHAR", "", "kernel, nvml, systemd, or the tool"),
        ("code", "VARCHAR", "", "xid_79, link_down, oom, ..."),
        ("said_of", "VARCHAR", "", "PCI address, interface or process, as logged"),
        ("text", "VARCHAR", "", "the line itself"),
        ("path", "VARCHAR", "", "the file, if it was read from one"),
        ("line", "BIGINT", "", "line of the file"),
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
