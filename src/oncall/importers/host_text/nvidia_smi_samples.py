"""Readings of `nvidia-smi dmon`, `pmon` and `--query-gpu=... --format=csv`: a row a sample."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from oncall.core.errors import Unreadable
from oncall.evidence.codes.pci_addresses import pci_address
from oncall.evidence.codes.throttle_reasons import AS_PRINTED
from oncall.importers.host_text.page import MIB, MOST_GPUS, Page, number, whole

_MOST_READINGS = 200_000
_Values = Mapping[str, str]
_Columns = Mapping[str, tuple[str, float, type]]  # by name: the column, its unit and type
_MONITORED: _Columns = {
    "pwr": ("power_w", 1, float),
    "gtemp": ("temp_c", 1, float),
    "sm": ("utilisation", 0.01, float),
    "pclk": ("sm_clock_mhz", 1, int),
    "fb": ("memory_used_bytes", MIB, int),
}


def _measured(row: _Values, columns: _Columns) -> dict[str, Any]:
    values = {name: number(row.get(name)) for name in columns}
    known = {columns[name]: value for name, value in values.items() if value is not None}
    return {column: kind(value * unit) for (column, unit, kind), value in known.items()}


def read_monitor(lines: list[str], page: Page) -> None:
    """A row for each GPU and sample. Samples without a stamp are a second apart, as by default,
    and the last one is of when the file was written."""
    names: list[str] = []
    samples: list[tuple[int, int, dict[str, str]]] = []  # the look, the GPU, what it shows
    for line in lines:
        words = line.lstrip("# ").split()
        if line.startswith("#"):
            names = [word.lower() for word in words] if "gpu" in words else names
        elif len(words) >= len(names) > 0 and len(samples) < _MOST_READINGS:
            row = dict(zip(names, words, strict=False))
            index = whole(row["gpu"])
            if index is not None and 0 <= index < MOST_GPUS:
                again = "pid" not in row and bool(samples) and index <= samples[-1][1]
                samples.append((samples[-1][0] + again if samples else 0, index, row))
    for look, index, row in samples:
        at_ns = _csv_instant(f"{row.get('date')} {row.get('time')}", "%Y%m%d %H:%M:%S")
        page.stated_ns = at_ns or page.stated_ns
        found = _measured(row, _MONITORED)
        found["at_ns"] = at_ns or page.at_ns - (samples[-1][0] - look) * 10**9
        if "pviol" in row or "tviol" in row:
            power, heat = (number(row.get(name)) or 0 for name in ("pviol", "tviol"))
            found["throttle_reasons"] = 0x04 * (power > 0) | 0x20 * (heat > 0)
        page.add("gpus", gpu=index, **found)


# ------------------------------------------------------------- --query-gpu ... csv

_CSV: _Columns = {
    "utilization.gpu": ("utilisation", 0.01, float),
    "power.draw": ("power_w", 1, float),
    "power.limit": ("power_limit_w", 1, float),
    "temperature.gpu": ("temp_c", 1, float),
    "clocks.sm": ("sm_clock_mhz", 1, int),
    "clocks.current.sm": ("sm_clock_mhz", 1, int),
    "clocks.max.sm": ("sm_clock_max_mhz", 1, int),
    "memory.used": ("memory_used_bytes", MIB, int),
    "memory.total": ("memory_bytes", MIB, int),
    "pcie.link.gen.current": ("pcie_gen", 1, int),
    "pcie.link.gen.gpucurrent": ("pcie_gen", 1, int),
    "pcie.link.gen.max": ("pcie_gen_max", 1, int),
    "pcie.link.width.current": ("pcie_width", 1, int),
    "pcie.link.width.max": ("pcie_width_max", 1, int),
    "ecc.errors.corrected.volatile.total": ("ecc_corrected", 1, int),
    "ecc.errors.uncorrected.volatile.total": ("ecc_uncorrected", 1, int),
}


_REASON_COLUMN = re.compile(r"clocks_(?:event|throttle)_reasons\.(?P<name>\w+)")
_REASON_OF_COLUMN = {name.lower().replace(" ", "_"): bit for name, bit in AS_PRINTED.items()}


def csv_columns(heading: str) -> list[str]:
    """The query's names in a heading; empty where it is none."""
    names = [name.strip().partition(" ")[0] for name in heading.split(",")]
    known = any(name in _CSV or _REASON_COLUMN.fullmatch(name) for name in names)
    return names if known and ("index" in names or "pci.bus_id" in names) else []


def _csv_reasons(row: _Values) -> int | None:
    """The bits of `clocks_event_reasons.active`, else of the columns of single reasons."""
    bits: int | None = None
    for column, said in row.items():
        found = _REASON_COLUMN.fullmatch(column)
        if found and found["name"] == "active" and re.fullmatch(r"0x[0-9a-fA-F]{1,16}", said):
            return int(said, 16)
        if found and said in ("Active", "Not Active"):
            bits = (bits or 0) | (
                _REASON_OF_COLUMN.get(found["name"], 0) if said == "Active" else 0
            )
    return bits


def read_csv(lines: list[str], page: Page) -> None:
    names = csv_columns(lines[0])
    seen: dict[int, str] = {}
    indexes: dict[str, int] = {}
    for place, line in enumerate(lines[1:]):
        cells = line.split(",")
        if place >= _MOST_READINGS:
            raise Unreadable(f"no more than its first {_MOST_READINGS:,} readings are read")
        row = dict(zip(names, (cell.strip() for cell in cells), strict=False))
        index = whole(row.get("index"))
        if "index" not in row and (address := row.get("pci.bus_id")):
            index = indexes.setdefault(address, len(indexes))  # they are listed in this order
        if len(cells) != len(names) or index is None or not 0 <= index < MOST_GPUS:
            continue
        at_ns = _csv_instant(row.get("timestamp"))
        page.stated_ns = at_ns or page.stated_ns
        found = _measured(row, _CSV) | ({} if at_ns is None else {"at_ns": at_ns})
        page.add("gpus", gpu=index, throttle_reasons=_csv_reasons(row), **found)
        if index not in seen:
            seen[index] = row.get("pci.bus_id", "")
            pci = pci_address(row.get("pci.bus_id") or row.get("gpu_bus_id") or "")
            about = {"model": row.get("name"), "firmware": row.get("driver_version")}
            page.gpu(index, pci_bus=pci, **about)


def _csv_instant(text: str | None, form: str = "%Y/%m/%d %H:%M:%S.%f") -> int | None:
    """`2026/11/20 03:10:00.123`"""
    try:
        at = datetime.strptime(text or "", form).replace(tzinfo=UTC)
    except ValueError:
        return None
    return int(at.timestamp() * 1000) * 10**6 if at.year >= 2000 else None
