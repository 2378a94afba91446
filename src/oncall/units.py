"""Quantities with units: parse `5 min`, `20 %`, `7 GB/s`, `64 MiB`; format them back.

Base units: nanoseconds, bytes, bytes per second, hertz, and plain ratios (20 % is 0.2).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from oncall.errors import UsageError

Dimension = Literal["duration", "bytes", "rate", "frequency", "ratio", "number", "text"]

NS_PER_S = 1_000_000_000

_DURATIONS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "ms": 1_000_000,
    "s": NS_PER_S,
    "sec": NS_PER_S,
    "min": 60 * NS_PER_S,
    "m": 60 * NS_PER_S,
    "h": 3600 * NS_PER_S,
    "d": 86400 * NS_PER_S,
}
_BYTES = {"B": 1} | {
    f"{prefix}{suffix}": base**power
    for power, prefix in enumerate("kMGTP", start=1)
    for suffix, base in (("B", 1000), ("iB", 1024))
}
_BYTES |= {"KB": 1000, "KiB": 1024}
_BITS = {"bit": 1} | {f"{p}bit": 1000**n for n, p in enumerate("kMGT", start=1)}
_BITS |= {f"{p}b": 1000**n for n, p in enumerate("kMGT", start=1)}
_FREQUENCIES = {"Hz": 1, "kHz": 10**3, "MHz": 10**6, "GHz": 10**9}

_UNITS: dict[str, tuple[Dimension, float]] = (
    {unit: ("duration", factor) for unit, factor in _DURATIONS.items()}
    | {unit: ("bytes", factor) for unit, factor in _BYTES.items()}
    | {f"{unit}/s": ("rate", factor) for unit, factor in _BYTES.items()}
    | {f"{unit}/s": ("rate", factor / 8) for unit, factor in _BITS.items()}
    | {unit: ("frequency", factor) for unit, factor in _FREQUENCIES.items()}
    | {"%": ("ratio", 0.01), "x": ("ratio", 1), "×": ("ratio", 1)}
)

_QUANTITY = re.compile(r"^\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*(\S*)\s*$")


@dataclass(frozen=True)
class Quantity:
    """A value in its dimension's base unit; durations and bytes are whole numbers."""

    value: int | float | str
    dimension: Dimension

    def __str__(self) -> str:
        return format_quantity(self)


def parse_quantity(text: str | int | float) -> Quantity:
    """The quantity that `text` spells.

    Raises UsageError for a number followed by a unit nobody knows. Text that does not start
    with a number is itself a value (dimension "text").
    """
    if isinstance(text, (int, float)):
        return Quantity(text, "number")
    match = _QUANTITY.match(text)
    if not match:
        return Quantity(text, "text")
    number = float(match[1]) if re.search(r"[.eE]", match[1]) else int(match[1])
    if not match[2]:
        return Quantity(number, "number")
    if match[2] not in _UNITS:
        raise UsageError(
            f"`{text}`: unknown unit `{match[2]}`; known are ns us ms s min h d, "
            "B kB KiB MB MiB GB GiB, the same per second, Gbit/s, MHz, %"
        )
    dimension, factor = _UNITS[match[2]]
    value = number * factor
    if dimension in ("duration", "bytes"):
        return Quantity(round(value), dimension)
    # 20 * 0.01 is not 0.2 in binary; what the engineer wrote should read back.
    return Quantity(round(float(value), 12) if dimension == "ratio" else float(value), dimension)


def parse_duration_ns(text: str) -> int:
    """Nanoseconds that `10m` or `1.5 s` spell. Raises UsageError for anything else."""
    quantity = parse_quantity(text)
    if quantity.dimension != "duration" or not isinstance(quantity.value, int):
        raise UsageError(f"`{text}` is not a duration such as 10m or 1.5 s")
    return quantity.value


# unit, its seconds, used below this many seconds (0: no limit), the smaller unit, its seconds
_LONG = (
    ("min", 60, 3600, "s", 1),
    ("h", 3600, 86400, "min", 60),
    ("d", 86400, 0, "h", 3600),
)


def _three_digits(value: float) -> str:
    digits = f"{value:.3g}"
    return f"{value:.0f}" if "e" in digits else digits


def format_duration(duration_ns: float) -> str:
    """A duration for reading: `850 ns`, `4.6 ms`, `12.5 s`, `5 min`, `3 h 10 min`."""
    sign, left = ("-", -duration_ns) if duration_ns < 0 else ("", duration_ns)
    if left < 60 * NS_PER_S:
        for unit, factor in (("ns", 1), ("µs", 10**3), ("ms", 10**6)):
            if left < 999.5 * factor:
                return f"{sign}{_three_digits(left / factor)} {unit}"
        return f"{sign}{_three_digits(left / NS_PER_S)} s"
    seconds = round(left / NS_PER_S)
    for unit, size, below, small, part in _LONG:
        if seconds < below or below == 0:
            break
    whole, rest = divmod(seconds, size)
    rest //= part
    return f"{sign}{whole} {unit}" + (f" {rest} {small}" if rest else "")


def format_bytes(size: float) -> str:
    """A size in binary units: `512 B`, `64 MiB`."""
    value, unit = float(size), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        if abs(value) < 1024:
            break
        value, unit = value / 1024, larger
    return f"{_three_digits(value)} {unit}"


def format_rate(bytes_per_s: float) -> str:
    """A data rate in decimal units: `7 GB/s`."""
    value, unit = float(bytes_per_s), "B/s"
    for larger in ("kB/s", "MB/s", "GB/s", "TB/s"):
        if abs(value) < 1000:
            break
        value, unit = value / 1000, larger
    return f"{_three_digits(value)} {unit}"


def format_number(value: float) -> str:
    """Whole numbers with thousands separated; others with three significant digits."""
    return f"{value:,.0f}" if float(value).is_integer() else _three_digits(value)


def format_quantity(quantity: Quantity) -> str:
    """The quantity as an engineer would write it into a rulebook."""
    value = quantity.value
    if isinstance(value, str):
        return value
    match quantity.dimension:
        case "duration":
            return format_duration(value)
        case "bytes":
            return format_bytes(value)
        case "rate":
            return format_rate(value)
        case "ratio":
            return f"{_three_digits(value * 100)} %"
        case "frequency":
            return f"{_three_digits(value / 1e6)} MHz"
        case _:
            return format_number(value)
