"""Quantities with units: parse `5 min`, `20 %`, `7 GB/s`, `64 MiB`; format them back.

Base units: nanoseconds, bytes, bytes per second, hertz, and plain ratios (20 % is 0.2).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal

from oncall.core.errors import UsageError

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

# 5, -1.5, .5, 2e9, and 12,345 as it is shown
_DIGITS = r"[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+"
_NUMBER = re.compile(rf"\s*([-+]?(?:(?:{_DIGITS})(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)\s*")
_DURATION = re.compile(r"\s*(-?)((?:[0-9]+\s*[a-zµ]+\s*){2,})")


@dataclass(frozen=True)
class Quantity:
    """A value in its dimension's base unit; durations and bytes are whole numbers."""

    value: int | float | str
    dimension: Dimension

    def __str__(self) -> str:
        return format_quantity(self)


def parse_quantity(text: str | int | float) -> Quantity:
    """The quantity that `text` spells.

    Text that does not start with a number is itself a value (dimension "text"). Raises
    UsageError for a number followed by anything but a unit, and for one too large to hold.
    """
    if isinstance(text, (int, float)):
        return Quantity(text, "number")
    match = _NUMBER.match(text)
    if not match:
        return Quantity(text, "text")
    unit = text[match.end() :].rstrip()
    number = _number(match[1].replace(",", ""))
    if not math.isfinite(number):
        raise UsageError(f"`{text}` is too large a number")
    if not unit:
        return Quantity(number, "number")
    if unit not in _UNITS:
        return _several_units(text, unit)
    dimension, factor = _UNITS[unit]
    value = number * factor
    if dimension in ("duration", "bytes"):
        if not math.isfinite(value):
            raise UsageError(f"`{text}` is too large a number")
        return Quantity(round(value), dimension)
    # 20 * 0.01 is not 0.2 in binary; what the engineer wrote should read back.
    return Quantity(round(float(value), 12) if dimension == "ratio" else float(value), dimension)


def _number(digits: str) -> int | float:
    whole = len(digits) <= 18 and not re.search(r"[.eE]", digits)
    return int(digits) if whole else float(digits)


def _several_units(text: str, unit: str) -> Quantity:
    """`3 h 10 min`, as durations are shown. Raises UsageError for anything else."""
    match = _DURATION.fullmatch(text)
    parts = re.findall(r"([0-9]{1,18})\s*([a-zµ]+)", match[2]) if match else []
    if not match or any(name not in _DURATIONS for _, name in parts):
        raise UsageError(
            f"`{text}`: unknown unit `{unit}`; known are ns us ms s min h d, "
            "B kB KiB MB MiB GB GiB, the same per second, Gbit/s, MHz, %"
        )
    total = sum(int(count) * _DURATIONS[name] for count, name in parts)
    return Quantity(-total if match[1] else total, "duration")


def parse_duration_ns(text: str) -> int:
    """Nanoseconds that `10m` or `1.5 s` spell. Raises UsageError for anything else."""
    quantity = parse_quantity(text)
    if quantity.dimension != "duration" or not isinstance(quantity.value, int):
        raise UsageError(f"`{text}` is not a duration such as 10m or 1.5 s")
    return quantity.value


# a unit, the smaller one beside it, how many make one, the smaller one's ns, for up to how many
_LONG = (
    ("min", "s", 60, NS_PER_S, 3600),
    ("h", "min", 60, 60 * NS_PER_S, 24 * 60),
    ("d", "h", 24, 3600 * NS_PER_S, math.inf),
)


def _three_digits(value: float) -> str:
    digits = f"{value:.3g}"
    return f"{value:.0f}" if "e+" in digits else digits


def _scaled(value: float, step: int, *units: str) -> str:
    """The value in the largest unit that leaves a number of at least one."""
    power = 0
    while abs(value) >= step - 0.5 and power < len(units) - 1:
        value, power = value / step, power + 1
    return f"{_three_digits(value)} {units[power]}"


def format_duration(duration_ns: float) -> str:
    """A duration for reading: `0 s`, `850 ns`, `4.6 ms`, `12.5 s`, `5 min`, `3 h 10 min`."""
    if duration_ns == 0:
        return "0 s"
    sign, left = ("-", -duration_ns) if duration_ns < 0 else ("", duration_ns)
    if left < 999.5 * 10**6:
        return sign + _scaled(left, 1000, "ns", "µs", "ms")
    if left < 59.95 * NS_PER_S or not math.isfinite(left):
        return f"{sign}{_three_digits(left / NS_PER_S)} s"
    unit, small, size, small_ns, _ = next(long for long in _LONG if round(left / long[3]) < long[4])
    whole, rest = divmod(round(left / small_ns), size)
    return f"{sign}{whole} {unit}" + (f" {rest} {small}" if rest else "")


def format_bytes(size: float) -> str:
    """A size in binary units: `512 B`, `64 MiB`."""
    return _scaled(size, 1024, "B", "KiB", "MiB", "GiB", "TiB", "PiB")


def format_rate(bytes_per_s: float) -> str:
    """A data rate in decimal units: `7 GB/s`."""
    return _scaled(bytes_per_s, 1000, "B/s", "kB/s", "MB/s", "GB/s", "TB/s")


def format_number(value: float) -> str:
    """Whole and large numbers with thousands separated; others with three significant digits."""
    whole = float(value).is_integer() or abs(value) >= 999.5
    return f"{value:,.0f}" if whole else _three_digits(value)


def counted(count: int, word: str | None) -> str:
    """`1 file`, `1,024 files`, `2 processes`; the number alone without a word."""
    if not word:
        return format_number(count)
    several = "es" if word.endswith(("s", "x", "ch", "sh")) else "s"
    return f"{format_number(count)} {word}{several if count != 1 else ''}"


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
