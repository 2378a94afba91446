"""Reports of a switch as the published simulator writes them (`telemetry_<switch>.txt`).

A report has an instant, then for each port that was asked for the running epoch (`now`) and the
one before (`last`): what passed the port, each flow's part of it, and perhaps how much came from
one other port. Depths are summed over packets; here they become means. A port's own counters stay
as they were until its next packet, its flows' do not: without a flow, they are of an older epoch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from oncall.evidence.incident import Incident
from oncall.importers.bounds import metered

EPOCH_NS = 1_000_000  # of the simulator's switches

FlowKey = tuple[int, int, int, int]  # source host, target host, source port, target port

_PORT = re.compile(r"port telemetry data for port (\d{1,6})")
_METER = re.compile(r"traffic meter fo?r?o?m? port (\d{1,6}) to port (\d{1,6})")
_HEADING = re.compile(r"polling|signal|portToPortBytes|enqQdepth|flowIdx|flow telemetry data for")
_FLOW_FIELDS, _PORT_FIELDS = 11, 3


@dataclass(frozen=True)
class _Period:
    """What a row is about: a switch's port in an epoch that had run `length_ns` at `at_ns`."""

    switch: str
    port: int
    at_ns: int
    length_ns: int

    @property
    def begun_ns(self) -> int:
        """When the epoch began."""
        return self.at_ns - self.length_ns


@dataclass
class Reports:
    """All reports of a recording, each port and epoch once: the fullest account of it."""

    ports: dict[tuple[str, int, int], tuple[_Period, int, int, int]] = field(default_factory=dict)
    flow_rows: dict[tuple[str, int, int, FlowKey], tuple[_Period, int, int, int]] = field(
        default_factory=dict
    )
    meters: dict[tuple[str, int, int, int], int] = field(default_factory=dict)
    listed: set[tuple[str, int, int]] = field(default_factory=set)  # whose flows were listed

    def flows(self) -> set[FlowKey]:
        """Every flow that a switch saw."""
        return {key[3] for key in self.flow_rows}

    def write(self, incident: Incident, flows: dict[FlowKey, int]) -> None:
        """Fill switch_ports, switch_flows and switch_meters."""
        passed = {key[:3] for key in self.flow_rows}
        ports = [
            (row[0], 0, 0, 0) if key in self.listed - passed else row
            for key, row in self.ports.items()
        ]
        incident.append("switch_ports", _columns(ports))
        rows = list(self.flow_rows.values())
        numbers = [flows[key[3]] for key in self.flow_rows]
        # The depth that a flow's packets met is not counted of those that met the port stopped.
        depths = [row[1] / (row[3] - row[2]) if row[3] > row[2] else None for row in rows]
        columns = {**_columns(rows), "queue_depth": depths, "flow": numbers}
        incident.append("switch_flows", columns)
        names = ("switch", "from_port", "to_port", "at_ns", "bytes")
        meters = (dict(zip(names, (*key, of), strict=True)) for key, of in self.meters.items())
        incident.append_rows("switch_meters", meters)


def _columns(rows: list[tuple[_Period, int, int, int]]) -> dict[str, list[object]]:
    """Depth is a mean over packets; of none it is unknown."""
    return {
        "switch": [row[0].switch for row in rows],
        "port": [row[0].port for row in rows],
        "at_ns": [row[0].at_ns for row in rows],
        "epoch_ns": [row[0].length_ns for row in rows],
        "queue_depth": [row[1] / row[3] if row[3] else None for row in rows],
        "paused_packets": [row[2] for row in rows],
        "packets": [row[3] for row in rows],
    }


def read_reports(text: str, switch: str, reports: Reports) -> tuple[int, str | None]:
    """Add the reports in `text`; returns how many rows were read, and what was wrong if any.

    A report that is cut off keeps what it has; a line that fits nowhere is counted.
    """
    rows = bad = 0
    at_ns: int | None = None
    period: _Period | None = None
    closed = True
    last = False
    meter: tuple[int, int] | None = None
    for line in metered(_lines(text)):
        words = line.split()
        whole = [int(word) if word.isdecimal() and len(word) <= 18 else None for word in words]
        if words[0] == "time" and len(words) == 2 and whole[1] is not None:
            at_ns, period, closed = whole[1], None, False
        elif line == "end":
            at_ns, closed = None, True
        elif _HEADING.match(line):
            if period is not None and line.startswith("flow telemetry"):
                reports.listed.add((period.switch, period.port, period.begun_ns))
        elif line in ("epoch now", "epoch last"):
            last = line == "epoch last"
        elif (found := _METER.fullmatch(line)) is not None:
            meter = int(found[1]), int(found[2])
        elif (found := _PORT.fullmatch(line)) is not None and at_ns is not None:
            period = _period(switch, int(found[1]), at_ns, last)
        elif meter is not None and len(words) == 1 and whole[0] is not None and at_ns is not None:
            key = switch, meter[0], meter[1], at_ns
            reports.meters[key] = max(whole[0], reports.meters.get(key, 0))
            meter = None
            rows += 1
        elif period is not None and _add(words, whole, period, reports):
            rows += 1
        else:
            bad += 1
    if not closed and period is not None:
        reports.listed.discard((period.switch, period.port, period.begun_ns))
    if bad:
        return rows, f"{bad:,} lines could not be read"
    return rows, None if closed else "cut off in its last report"


def _lines(text: str) -> Iterator[str]:
    return (line for line in map(str.strip, text.splitlines()) if line)


def _period(switch: str, port: int, at_ns: int, last: bool) -> _Period:
    """Epochs begin at whole multiples of their length."""
    begun = at_ns - at_ns % EPOCH_NS
    if last:
        return _Period(switch, port, begun, EPOCH_NS)
    return _Period(switch, port, at_ns, at_ns - begun or EPOCH_NS)


def _add(words: list[str], whole: list[int | None], period: _Period, reports: Reports) -> bool:
    begun = period.begun_ns
    if len(words) == _PORT_FIELDS and None not in whole:
        queued, stopped, passed = (number or 0 for number in whole)
        key = period.switch, period.port, begun
        if key not in reports.ports or reports.ports[key][3] <= passed:
            reports.ports[key] = period, queued, stopped, passed
        return True
    if len(words) != _FLOW_FIELDS:
        return False
    flow = _flow(words)
    packets, depth, paused = whole[8], whole[9], whole[10]
    if flow is None or packets is None or depth is None or paused is None:
        return False
    named = period.switch, period.port, begun, flow
    if named not in reports.flow_rows or reports.flow_rows[named][3] <= packets:
        reports.flow_rows[named] = period, depth, paused, packets
    return True


def _flow(words: list[str]) -> FlowKey | None:
    """Hosts out of addresses like 0b000c01: the two bytes in the middle."""
    try:
        src, dst = (int(word, 16) >> 8 & 0xFFFF for word in words[1:3])
        ports = int(words[3]), int(words[4])
    except ValueError:
        return None
    return (src, dst, *ports) if max(ports) < 1 << 16 else None
