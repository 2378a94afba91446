"""Counters of ports as a shell shows them: SONiC's `show pfc counters`, `show queue counters` and
`watermark`, `show pfcwd stats`, `show interfaces counters`; `ethtool -S`; `rdma statistic`;
`ethtool -I --show-fec`; `perfquery`; `grep . /sys/class/infiniband/*/ports/*/*counters/*`.

Counters are of one instant, which a line of `date` before them states; two readings of a port, in
one file or in two, make a rate. Without a date only the order of readings is known: rows then lie
an hour apart, so that they show what grew, and no rate. A device's name stands in the prompt
(`admin@leaf3:~$ show pfc counters`, `leaf3# show ...`) or, failing that, begins the file's name
(`leaf3.pfc.txt`).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
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
from oncall.importers.bounds import metered
from oncall.importers.host_names import host_named, is_word
from oncall.importers.host_text.sections import Section, sections
from oncall.importers.logs.clock import MONTHS
from oncall.importers.recordings import append_recording
from oncall.importers.switches.shell_tables import Reader, Reading, cells, is_rule, reader_of

KIND = "port_counters"

_HEAD_LINES = 60
_ETHTOOL = re.compile(r"NIC statistics:\s*|FEC parameters for (?P<port>\S+):\s*")
_COUNTER = re.compile(r"\s+([A-Za-z0-9_.\[\]]+):\s+(\d{1,18})\s*")
_PROMPT = re.compile(
    r"(?:[^\s@]+@)?([\w.-]++)(?::[^\s$#>]*+)?[$#>]\s*+(?:sudo\s+)?((?:show|ethtool|date|watch|cat)\b.*)"
)
_COMMAND = re.compile(r"ethtool\s+-S\s+(\S+)")
_DATE = re.compile(r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:[.,]\d+)?(Z|[+-]\d\d:?\d\d)?")
_DATE_WORDS = re.compile(  # as `date` prints it
    r"(?:[A-Z][a-z]{2} )?(?:(?P<month>[A-Z][a-z]{2}) +(?P<day>\d{1,2})|(?P<day2>\d{1,2}) "
    r"(?P<month2>[A-Z][a-z]{2}) (?P<year2>\d{4})) (?P<time>\d\d:\d\d:\d\d)(?: (?P<half>[AP]M))?"
    r"(?: [A-Z]{2,5})?(?: (?P<year>\d{4}))?$"
)
_PERFQUERY = re.compile(r"# Port (?:extended )?counters: Lid (?P<lid>\d+) port (?P<port>\d+)")
_OF_PORT = re.compile(r"(?P<name>[A-Z]\w+):\.+(?P<value>\d{1,18})$")
_SATURATED = (2**32 - 1, 2**16 - 1, 2**8 - 1)  # where perfquery's counters stop counting
_SYSFS = re.compile(
    r"\A(?:[^\s/]*+/)*?(?:[^\s/]*[^\s/\w.-])?+(?P<nic>[\w.-]++)/ports/\d+/"
    r"(?P<counter>(?:hw_)?counters/\w+):(?P<value>\d{1,18})$"
)
_RDMA = re.compile(r"link (?P<nic>[\w.-]+)/\d+ (?P<counters>(?:\w+ \d{1,18}(?:\s+|$))+)")
# perfquery's names as the kernel's files have them.
_SYSFS_NAMES = {
    "PortXmitData": "port_xmit_data",
    "PortRcvData": "port_rcv_data",
    "SymbolErrorCounter": "symbol_error",
    "LinkErrorRecoveryCounter": "link_error_recovery",
    "LinkDownedCounter": "link_downed",
    "PortRcvErrors": "port_rcv_errors",
    "PortXmitDiscards": "port_xmit_discards",
    "LocalLinkIntegrityErrors": "local_link_integrity_errors",
    "ExcessiveBufferOverrunErrors": "excessive_buffer_overrun_errors",
}
_APART_NS = 3600 * NS_PER_S  # readings whose order alone is known: longer than any rate is taken of
_INTERFACE = re.compile(r"(?:mlx\d_|ib|en[opsx]|eth|bond|rocep|ibp|bnxt_re|irdma|hsn|rdma)\d\w*")
_UNNAMED = "(unnamed)"  # the NIC, where neither text nor name says which
_EARLIER, _LATER = (
    re.compile(r"before|first|old|prev\w*|begin|start"),
    re.compile(r"after|second|new|later|end"),
)
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
Place = tuple[str | None, str, int]  # device, port, instant


def recognises(path: Path, head: bytes) -> bool:  # noqa: ARG001 - content alone decides
    """Whether the beginning has the heading of one of these."""
    text = head.decode("utf-8", "replace")
    lines = files.lines(text)[:_HEAD_LINES]
    return (
        any(map(_is_of_nic, (line for one in sections(lines, prompts=False) for line in one.lines)))
        or any(reader_of(line) is not None and is_rule(rule) for line, rule in pairwise(lines))
        or _known_counters(text) >= _LEAST_KNOWN
    )


def _known_counters(text: str) -> int:
    """Lines that hold a counter of a driver by its name: `ethtool -S` with its heading cut off."""
    found = map(_COUNTER.fullmatch, files.lines(text))
    return sum(1 for one in found if one and f"ethtool/{one[1]}" in WANTED)


def _is_of_nic(line: str) -> bool:
    forms = (_RDMA, _PERFQUERY, _SYSFS)
    return bool(_ETHTOOL.fullmatch(line) or any(form.match(line.strip()) for form in forms))


@dataclass
class _File:
    """One file's rows; `dated`: its text states when they were counted."""

    path: Path
    written_ns: int | None = None
    dated: bool = False
    priorities: list[Row] = field(default_factory=list)
    ports: list[Row] = field(default_factory=list)
    problem: str | None = None

    @property
    def last_ns(self) -> int:
        """The last instant of its rows."""
        return max((row["at_ns"] for row in self.ports), default=0)

    @property
    def order(self) -> tuple[int, int, str]:
        """Of files that state no time, the order in which they were taken."""
        words = re.split(r"[^a-z]+", self.path.name.lower())
        place = any(map(_LATER.fullmatch, words)) - any(map(_EARLIER.fullmatch, words))
        return place, self.written_ns or 0, self.path.name

    def move(self, by_ns: int) -> None:
        """Shift its rows in time."""
        for row in (*self.ports, *self.priorities):
            row["at_ns"] += by_ns


def read(paths: Sequence[Path], incident: Incident, job: str) -> None:
    """Add each port's counters to nics, and those of its priorities to nic_priorities."""
    found = [_read(path) for path in sorted(paths)]
    _order([file for file in found if file.ports and not file.dated])
    for file in found:
        incident.append_rows("nic_priorities", file.priorities)
        incident.append_rows("nics", file.ports)
        append_recording(
            incident,
            job,
            KIND,
            file.path,
            len(file.priorities) + len(file.ports),
            file.problem,
            written_ns=file.last_ns or file.written_ns,
            undated=not file.dated,
        )


def _read(path: Path) -> _File:
    file = _File(path)
    try:
        file.written_ns = files.modified_ns(path)
        data = files.whole(path, _FACTOR)
        pages = _Pages(path, file.written_ns)
        lines = files.lines(data.decode("utf-8", "replace"))
        file.priorities, file.ports = _rows(pages.of_hosts(sections(lines, prompts=False)))
        file.dated = pages.dated
        if pages.bad:
            file.problem = f"{pages.bad:,} lines could not be read"
        if not file.ports:
            file.problem = "no counter of any port is in it"
    except Unreadable as error:
        file.problem = str(error)
    return file


def _order(undated: Sequence[_File]) -> None:
    """Put the files that state no time one after the other, host by host: the newest at its own
    time, the others at least an hour apart before it."""
    hosts: dict[str, list[_File]] = defaultdict(list)
    for file in undated:
        hosts[file.ports[0]["node"]].append(file)
    for each in hosts.values():
        next_ns = None
        for file in sorted(each, key=lambda one: one.order, reverse=True):
            until_ns = min(file.last_ns, next_ns - _APART_NS) if next_ns else file.last_ns
            file.move(until_ns - file.last_ns)
            next_ns = min(row["at_ns"] for row in file.ports)


class _Pages:
    """Reads the output of commands one after the other; `bad` counts rows that fit no table."""

    def __init__(self, path: Path, written_ns: int) -> None:
        named = host_named(path.name)
        first = re.split(r"[._]" if named else r"[.\-_]", named or path.name)[0]
        self.node = None if is_word(first) else first
        self.port = _port_in(path)  # of ethtool and perfquery, where no command names it
        self.at_ns, self.dated = written_ns, False
        self.table: tuple[list[str], Reader] | None = None
        self.bad = 0
        self._read: set[tuple[str | None, str, str]] = set()  # host, port and counter since `at_ns`

    def of_hosts(self, parts: Sequence[Section]) -> Iterator[tuple[Place, Reading]]:
        """The counters of each host's part of a file."""
        for part in parts:
            self.node = part.host or self.node
            yield from self.readings(part.lines)

    def readings(self, lines: Sequence[str]) -> Iterator[tuple[Place, Reading]]:
        for line in metered(lines):
            bare = line.strip()
            if self._is_context(line):
                self.table = None
            elif title := _ETHTOOL.fullmatch(line):
                self.table, self.port = None, title["port"] or self.port
                yield self._begin(self.port)
            elif counter := _COUNTER.fullmatch(line):
                yield from self._named(self.port, f"ethtool/{counter[1]}", counter[2])
            elif link := _RDMA.fullmatch(bare):
                words = link["counters"].split()
                yield self._begin(link["nic"])
                for name, value in zip(words[::2], words[1::2], strict=True):
                    yield from self._named(link["nic"], f"hw_counters/{name}", value)
            elif heading := _PERFQUERY.match(bare):
                if self.port == _UNNAMED or self.port.startswith("lid "):
                    self.port = f"lid {heading['lid']}"
                yield self._begin(self.port)
            elif (counter := _OF_PORT.match(bare)) and counter[1] in _SYSFS_NAMES:
                if int(counter[2]) not in _SATURATED:
                    name = f"counters/{_SYSFS_NAMES[counter[1]]}"
                    yield from self._named(self.port, name, counter[2])
            elif counter := _SYSFS.match(bare):
                yield from self._named(counter["nic"], counter["counter"], counter["value"])
            elif (table := reader_of(line)) is not None:
                self.table = table
            elif self.table is not None and not is_rule(line):
                yield from map(self._placed, self._row(line))

    def _begin(self, port: str) -> tuple[Place, Reading]:
        """A port's counters begin."""
        return self._placed(Reading(port, None, "port", 1))

    def _at(self, at_ns: int) -> None:
        self.at_ns = at_ns
        self._read.clear()

    def _named(self, port: str, name: str, value: str) -> Iterator[tuple[Place, Reading]]:
        """A counter by its driver's name; none for the many that are not kept. One that stands
        there again, at no other instant, was read later."""
        if name in WANTED:
            if (self.node, port, name) in self._read and not self.dated:
                self._at(self.at_ns + _APART_NS)
            self._read.add((self.node, port, name))
            yield from map(self._placed, self._sane([Reading(port, None, name, int(value))]))

    def _is_context(self, line: str) -> bool:
        """Whether the line gives the device, its port or the time, not a counter."""
        prompt = _PROMPT.fullmatch(line.strip())
        if prompt:
            self.node = prompt[1]
        command = _COMMAND.search(line)
        if command:
            self.port = command[1]
        date = None if prompt else _DATE.match(line) or _DATE_WORDS.match(line.strip())
        at_ns = _moment(_spelled(date) or date) if date else None
        if at_ns:
            self.dated = True
            self._at(at_ns)
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


def _port_in(path: Path) -> str:
    """The interface that a file's name holds: `gpu018.ens2.txt`."""
    words = re.split(r"[.\-]|_(?!\d)", path.name)
    found = next(filter(_INTERFACE.fullmatch, words), None)
    last = path.stem.rsplit(".", 1)[-1]
    return found or (_UNNAMED if last == path.stem or is_word(last) else last)


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


def _spelled(date: re.Match[str]) -> re.Match[str] | None:
    """`Fri Nov 27 03:10:00 UTC 2026` as digits; None for what is in digits."""
    said = date.groupdict()
    month = said.get("month") or said.get("month2")
    year = said.get("year") or said.get("year2")
    if month not in MONTHS or year is None:
        return None
    day, hour = int(said["day"] or said["day2"]), int(said["time"][:2])
    if said["half"]:
        hour = hour % 12 + 12 * (said["half"] == "PM")
    return _DATE.match(f"{year}-{MONTHS[month]:02}-{day:02} {hour:02}{said['time'][2:]}")


def _moment(date: re.Match[str]) -> int | None:
    """Unix time, ns; None for what is no date, or one that no clock shows."""
    try:
        if "month" in date.groupdict():
            return None
        moment = datetime.fromisoformat(date[1] + (date[2] or "+00:00")).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    at_ns = int(moment.timestamp()) * NS_PER_S
    return at_ns if 0 <= at_ns <= _MOST else None
