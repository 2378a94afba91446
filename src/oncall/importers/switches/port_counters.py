"""Counters of ports as a shell shows them: SONiC's `show pfc counters`, `show queue counters` and
`watermark`, `show pfcwd stats`, `show interfaces counters`; `ethtool -S`; `rdma statistic`.

Counters are of one instant, which a line of `date` before them tells, else the file's own time; two
readings of a port, in one file or in two, make a rate. A device's name stands in the prompt
(`admin@leaf3:~$ show pfc counters`, `leaf3# show ...`) or, failing that, begins the file's name
(`leaf3.pfc.txt`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from oncall.core.errors import Unreadable
from oncall.core.units import NS_PER_S
from oncall.evidence.codes.nic_counters import (
    WANTED,
    Values,
    pcie_waiting,
    port_counters,
    priority_counters,
)
from oncall.evidence.incident import Incident
from oncall.importers import files
from oncall.importers.printable import printable
from oncall.importers.switches.shell_tables import Reader, Reading, cells, is_rule, reader_of

KIND = "port_counters"

_HEAD_LINES = 60
_ETHTOOL = re.compile(r"NIC statistics:\s*")
_COUNTER = re.compile(r"\s+([A-Za-z0-9_.\[\]]+):\s+(\d{1,18})\s*")
_PROMPT = re.compile(
    r"(?:\S+@)?([\w.-]+)(?::\S*)?[$#>]\s*(?:sudo\s+)?((?:show|ethtool|date|watch|cat)\b.*)"
)
_COMMAND = re.compile(r"ethtool\s+-S\s+(\S+)")
_DATE = re.compile(r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:[.,]\d+)?(Z|[+-]\d\d:?\d\d)?")
_RDMA = re.compile(r"link (?P<nic>[\w.-]+)/\d+ (?P<counters>(?:\w+ \d{1,18}\s*)+)")
_LEAST_KNOWN = 3  # counters whose names are known, where no heading announces them
_MOST = (1 << 63) - 1  # what a column holds
_SUMMED = {
    "rx_pause": "pfc_rx_pause",
    "tx_pause": "pfc_tx_pause",
    "rx_pause_ns": "pfc_rx_pause_ns",
    "tx_pause_ns": "pfc_tx_pause_ns",
    "storms": "pause_storms",
}
_FACTOR = 200.0  # bytes of memory for each of the text, at worst: counters of a digit in dicts
_MOST_SUMMED = _MOST // 100  # of a priority or queue, of which a port has fewer

Row = dict[str, Any]
Place = tuple[str, str, int]  # device, port, instant


def recognises(path: Path, head: bytes) -> bool:  # noqa: ARG001 - content alone decides
    """Whether the beginning has the heading of one of these."""
    text = head.decode("utf-8", "replace")
    lines = text.splitlines()[:_HEAD_LINES]
    return (
        any(_ETHTOOL.fullmatch(line) or _RDMA.fullmatch(line.strip()) for line in lines)
        or any(reader_of(line) is not None and is_rule(rule) for line, rule in pairwise(lines))
        or _known_counters(text) >= _LEAST_KNOWN
    )


def _known_counters(text: str) -> int:
    """Lines that hold a counter of a driver by its name: `ethtool -S` with its heading cut off."""
    found = map(_COUNTER.fullmatch, text.splitlines())
    return sum(1 for one in found if one and f"ethtool/{one[1]}" in WANTED)


def read(paths: Sequence[Path], incident: Incident, job: str) -> None:
    """Add each port's counters to nics, and those of its priorities to nic_priorities."""
    for path in sorted(paths):
        priorities: list[Row] = []
        ports: list[Row] = []
        try:
            data = files.whole(path, _FACTOR)
            pages = _Pages(path)
            priorities, ports = _rows(pages.readings(data.decode("utf-8", "replace").splitlines()))
            problem = f"{pages.bad:,} lines could not be read" if pages.bad else None
            if not ports:
                problem = "no counter of any port is in it"
        except Unreadable as error:
            problem = str(error)
        _append(incident, "nic_priorities", priorities)
        _append(incident, "nics", ports)
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


class _Pages:
    """Reads the output of commands one after the other; `bad` counts rows that fit no table."""

    def __init__(self, path: Path) -> None:
        self.node = re.split(r"[.\-_]", path.name)[0]
        self.port = path.stem.rsplit(".", 1)[-1]  # of ethtool, where no command names it
        self.at_ns = files.modified_ns(path)
        self.table: tuple[list[str], Reader] | None = None
        self.bad = 0

    def readings(self, lines: Sequence[str]) -> Iterator[tuple[Place, Reading]]:
        for line in lines:
            if self._is_context(line):
                self.table = None
            elif _ETHTOOL.fullmatch(line):
                self.table = None
                yield self._placed(Reading(self.port, None, "port", 1))
            elif counter := _COUNTER.fullmatch(line):
                yield from self._named(self.port, f"ethtool/{counter[1]}", counter[2])
            elif link := _RDMA.fullmatch(line.strip()):
                words = link["counters"].split()
                for name, value in zip(words[::2], words[1::2], strict=True):
                    yield from self._named(link["nic"], f"hw_counters/{name}", value)
            elif (table := reader_of(line)) is not None:
                self.table = table
            elif self.table is not None and not is_rule(line):
                yield from map(self._placed, self._row(line))

    def _named(self, port: str, name: str, value: str) -> Iterator[tuple[Place, Reading]]:
        """A counter by its driver's name; none for the many that are not kept."""
        if name in WANTED:
            yield from map(self._placed, self._sane([Reading(port, None, name, int(value))]))

    def _is_context(self, line: str) -> bool:
        """Whether the line gives the device, its port or the time, not a counter."""
        prompt = _PROMPT.fullmatch(line.strip())
        if prompt:
            self.node = prompt[1]
        command = _COMMAND.search(line)
        if command:
            self.port = command[1]
        date = None if prompt else _DATE.match(line)
        if date:
            self.at_ns = _moment(date) or self.at_ns
        return bool(prompt or command or date)

    def _row(self, line: str) -> list[Reading]:
        columns, reader = self.table or ([], None)
        row = cells(line, columns)
        # Titles and empty lines stand between tables.
        if reader is None or not line.strip() or (row is None and line.rstrip().endswith(":")):
            return []
        try:
            if row is None:
                raise ValueError(line)
            return self._sane(list(reader(columns, row)))
        except ValueError:
            self.bad += 1
            return []

    def _sane(self, found: Sequence[Reading]) -> list[Reading]:
        """Those that fit their columns, sums included; who has one that does not is damaged."""
        kept = [one for one in found if one.value <= _most(one.column)]
        self.bad += len(kept) < len(found)
        return kept

    def _placed(self, reading: Reading) -> tuple[Place, Reading]:
        return (self.node, reading.port, self.at_ns), reading


def _most(column: str) -> int:
    if "duration" in column:  # in us, to be kept in ns
        return _MOST_SUMMED // 1000
    return _MOST_SUMMED if column in _SUMMED else _MOST


def _rows(readings: Iterator[tuple[Place, Reading]]) -> tuple[list[Row], list[Row]]:
    """Rows of nic_priorities, and of nics, which get the sums if a port reports none itself."""
    priorities: dict[tuple[Place, int], Row] = {}
    ports: dict[Place, Row] = {}
    sums: dict[Place, Row] = {}
    named: dict[Place, dict[str, int | None]] = {}
    for place, counter in readings:
        node, port, at_ns = place
        base = {"node": node, "nic": port, "at_ns": at_ns, "port": 1}
        row = ports.setdefault(place, dict(base))
        if "/" in counter.column:
            named.setdefault(place, {})[counter.column] = counter.value
            continue
        if counter.priority is None:
            row[counter.column] = counter.value
            continue
        if counter.column != "storms":
            base["priority"] = counter.priority
            priorities.setdefault((place, counter.priority), base)[counter.column] = counter.value
        if counter.column in _SUMMED:
            total, column = sums.setdefault(place, {}), _SUMMED[counter.column]
            total[column] = total.get(column, 0) + counter.value
    for place, values in named.items():
        ports[place] |= _known(values)
        base = {name: ports[place][name] for name in ("node", "nic", "at_ns", "port")}
        for priority, columns in priority_counters(values).items():
            priorities[place, priority] = {**base, "priority": priority, **_present(columns)}
    return list(priorities.values()), [
        {**sums.get(place, {}), **row} for place, row in ports.items()
    ]


def _known(values: Values) -> Row:
    return _present({**port_counters(values), "pcie_waiting": pcie_waiting(values)})


def _present(columns: Row) -> Row:
    return {name: value for name, value in columns.items() if value is not None}


def _append(incident: Incident, table: str, rows: list[Row]) -> None:
    names = dict.fromkeys(name for row in rows for name in row)
    if rows:
        incident.append(table, {name: [row.get(name) for row in rows] for name in names})


def _moment(date: re.Match[str]) -> int | None:
    """Unix time, ns; None for what is no date, or one that no clock shows."""
    try:
        moment = datetime.fromisoformat(date[1] + (date[2] or "+00:00")).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    at_ns = int(moment.timestamp()) * NS_PER_S
    return at_ns if 0 <= at_ns <= _MOST else None
