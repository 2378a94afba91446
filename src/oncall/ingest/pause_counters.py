"""Pause counters as a shell shows them: SONiC's `show pfc counters`, `ethtool -S` of a port.

Counters are of one instant, which a line of `date` before them tells, else the file's own time;
two files of a port make a rate. A device's name stands in the prompt (`admin@leaf3:~$ show pfc
counters`), in a line `leaf3:` above or, failing these, in the file's name (`leaf3.pfc.txt`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from oncall.evidence.incident import Incident
from oncall.ingest.printable import printable
from oncall.units import NS_PER_S

KIND = "pause_counters"

_SONIC = re.compile(r"^\s*Port (Rx|Tx)((?:\s+PFC\d)+)\s*$")
_ETHTOOL = re.compile(r"^NIC statistics:\s*$")
_COUNTER = re.compile(r"^\s+([A-Za-z0-9_.\[\]]+):\s+(\d{1,18})\s*$")
_PROMPT = re.compile(r"^(?:\S+@)?([\w.-]+):\S*[$#>]\s*(?:sudo\s+)?(?:show pfc|ethtool)(.*)$")
_COMMAND = re.compile(r"ethtool\s+-S\s+(\S+)")
_DATE = re.compile(r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:\.\d+)?(Z|[+-]\d\d:?\d\d)?")
_PRIORITY = re.compile(r"(rx|tx)_prio(\d)_pause(_duration)?$")
_PORT_COUNTERS = {
    "rx_pause_ctrl_phy": "pfc_rx_pause",
    "tx_pause_ctrl_phy": "pfc_tx_pause",
    "tx_pause_storm_error_events": "pause_storms",
}
_US = 1000

Row = dict[str, Any]


def recognises(path: Path, head: bytes) -> bool:  # noqa: ARG001 - content alone decides
    """Whether the beginning has the heading of one of the two."""
    lines = head.decode("utf-8", "replace").splitlines()
    return any(_SONIC.match(line) or _ETHTOOL.match(line) for line in lines[:40])


def read(paths: Sequence[Path], incident: Incident, job: str) -> None:
    """Add each port's counters to nics, and those of its priorities to nic_priorities."""
    for path in sorted(paths):
        text = path.read_text(encoding="utf-8", errors="replace")
        priorities, ports, bad = _parse(text, path)
        for row in _summed(priorities):
            known = ports.setdefault((row["node"], row["nic"]), {})
            known |= {key: value for key, value in row.items() if key not in known}
        _append(incident, "nic_priorities", priorities)
        _append(incident, "nics", list(ports.values()))
        problem = f"{bad:,} lines could not be read" if bad else None
        if not ports:
            problem = "no counter of any port is in it"
        incident.append(
            "recordings",
            {
                "job": [job],
                "path": [printable(str(path))],
                "kind": KIND,
                "rows": [len(priorities) + len(ports)],
                "problem": [problem],
            },
        )


def _parse(text: str, path: Path) -> tuple[list[Row], dict[tuple[str, str], Row], int]:
    """Rows by priority, rows by port, and how many lines within a table fitted nowhere."""
    node = re.split(r"[.\-_]", path.name)[0]
    nic, at_ns, bad = "", _instant(path), 0
    way: str | None = None
    numbers: list[int] = []
    by_priority: dict[tuple[str, str, int], Row] = {}
    ports: dict[tuple[str, str], Row] = {}
    for line in text.splitlines():
        prompt = _PROMPT.match(line)
        if prompt:
            node, way = prompt[1], None
        if command := _COMMAND.search(line):
            nic = command[1]
        if prompt or command:
            continue
        if heading := _SONIC.match(line):
            way = heading[1].lower()
            numbers = [int(word) for word in re.findall(r"PFC(\d)", heading[2])]
        elif date := _DATE.match(line):
            at_ns = _told(date) or at_ns
        elif _ETHTOOL.match(line):
            way = "ethtool"
            nic = nic or path.stem.rsplit(".", 1)[-1]
            ports[node, nic] = {"node": node, "nic": nic, "at_ns": at_ns, "port": 1}
        elif way == "ethtool" and (counter := _COUNTER.match(line)):
            base = {"node": node, "nic": nic, "at_ns": at_ns, "port": 1}
            _count(counter[1], int(counter[2]), base, by_priority, ports[node, nic])
        elif way in ("rx", "tx") and line.strip() and not set(line.strip()) <= set("- "):
            values = [word.replace(",", "") for word in line.split()]
            if len(values) != len(numbers) + 1 or not all(v.isdecimal() for v in values[1:]):
                bad += 1
                continue
            for number, value in zip(numbers, values[1:], strict=True):
                row = by_priority.setdefault(
                    (node, values[0], number),
                    {"node": node, "nic": values[0], "at_ns": at_ns, "port": 1, "priority": number},
                )
                row[f"{way}_pause"] = int(value)
    return list(by_priority.values()), ports, bad


def _count(
    name: str, value: int, base: Row, by_priority: dict[tuple[str, str, int], Row], port: Row
) -> None:
    """Put one counter of ethtool where it belongs; most are none of ours."""
    if found := _PRIORITY.match(name):
        number = int(found[2])
        row = by_priority.setdefault(
            (base["node"], base["nic"], number), {**base, "priority": number}
        )
        if found[3]:
            row[f"{found[1]}_pause_ns"] = value * _US
        else:
            row[f"{found[1]}_pause"] = value
    elif name in _PORT_COUNTERS:
        port[_PORT_COUNTERS[name]] = value


def _summed(priorities: Sequence[Row]) -> Iterator[Row]:
    """Each port with the sums over its priorities."""
    ports: dict[tuple[str, str], Row] = {}
    for row in priorities:
        base = {key: row[key] for key in ("node", "nic", "at_ns", "port")}
        port = ports.setdefault((row["node"], row["nic"]), base)
        for key in ("rx_pause", "tx_pause", "rx_pause_ns", "tx_pause_ns"):
            if key in row:
                port[f"pfc_{key}"] = port.get(f"pfc_{key}", 0) + row[key]
    yield from ports.values()


def _append(incident: Incident, table: str, rows: list[Row]) -> None:
    names = dict.fromkeys(name for row in rows for name in row)
    if rows:
        incident.append(table, {name: [row.get(name) for row in rows] for name in names})


def _instant(path: Path) -> int:
    return path.stat().st_mtime_ns


def _told(date: re.Match[str]) -> int | None:
    try:
        moment = datetime.fromisoformat(date[1] + (date[2] or "+00:00"))
    except ValueError:
        return None
    return int(moment.astimezone(UTC).timestamp()) * NS_PER_S
