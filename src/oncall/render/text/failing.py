"""Devices that are failing slowly, as a table at 80 columns or JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime

from oncall.archive.failing import Failing, Fleet
from oncall.core.printable import clean
from oncall.core.units import format_duration, format_number

_MOST = 40  # rows; JSON has all
_NOUNS = {"gpu": "GPUs", "nic": "NICs", "host": "hosts"}
_NS_PER_S = 10**9


def to_json(found: Fleet | None) -> str:
    """Everything, for programs; null if the archive holds no hours."""
    return json.dumps(None if found is None else {"schema": 1, **asdict(found)}, indent=2) + "\n"


def to_text(found: Fleet | None) -> str:
    """A line a device and counter, the worst first."""
    return "".join(f"{line.rstrip()}\n" for line in _lines(found))


def _lines(found: Fleet | None) -> Iterator[str]:
    if found is None:
        yield "No hours in the archive: add incidents that collectors recorded."
        return
    fleet = ", ".join(f"{count:,} {_NOUNS[kind]}" for kind, count in found.devices.items())
    until = datetime.fromtimestamp(found.until_ns // _NS_PER_S, UTC).strftime("%Y-%m-%d %H:%M")
    yield f"{format_duration(found.until_ns - found.since_ns)} to {until} UTC: {fleet}"
    if not found.failing:
        yield "No device counts errors far more often than the fleet."
        return
    yield ""
    yield f"{'device':<26} {'errors':<28} {'fleet a day':>13}  trend"
    for one in found.failing[:_MOST]:
        yield f"{_device(one):<26} {_counted(one):<28} {one.fleet_median:>13.3g}  {one.trend}"
    if len(found.failing) > _MOST:
        yield f"... {len(found.failing) - _MOST:,} more, in --format json"


def _device(one: Failing) -> str:
    device = {"gpu": f"/gpu{one.device}", "host": ""}.get(one.kind, f"/{one.device}")
    return clean(f"{one.node}{device}")[:26]


def _counted(one: Failing) -> str:
    name = one.counted.replace("_", " ").replace("nvlink", "NVLink").replace("pcie", "PCIe")
    return f"{name} {format_number(one.errors)} in {one.hours} h"[:28]
