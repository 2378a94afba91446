"""Rates over time as glyphs: on a scale that is stated, with gaps that show, NaN safe."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from oncall.core.units import NS_PER_S, format_bytes, format_duration, format_number, format_rate
from oncall.views.rates.buckets import Series

Floats = npt.NDArray[np.float64]
Kind = Literal[
    "value", "outside", "gap", "band", "threshold", "empty", "value band", "outside band"
]

GAP, ZERO = -1, 0
_COARSE_NS = (3600 * NS_PER_S, 60 * NS_PER_S, NS_PER_S)
_ROUND = (1, 1.5, 2, 3, 5, 8, 10, 15)
_LEAST, _MOST = 1e-300, 1e300  # beyond, powers of ten are no longer floats
# By eighths of a line, 0 for a rate of zero.
BLOCKS = "▁▁▂▃▄▅▆▇█"
GAP_GLYPH, THRESHOLD_GLYPH = "·", "─"


@dataclass(frozen=True)
class Scale:
    """What the bottom and the top of a line mean."""

    low: float
    high: float


# ---------------------------------------------------------------------- scales


def nice_ceiling(value: float) -> float:
    """The least of a few round numbers that holds `value`: a scale that seldom moves."""
    if not math.isfinite(value) or not _LEAST < value < _MOST:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in _ROUND if step * power >= value * (1 - 1e-9))


def scales(series: Sequence[Series], shared: bool = True) -> tuple[Scale, ...]:
    """A scale for each series, from zero; one for all of a unit and group if `shared`."""
    highest: dict[object, float] = {}
    keys = [
        (one.unit, one.group or one.name) if shared else number for number, one in enumerate(series)
    ]
    for key, one in zip(keys, series, strict=True):
        known = one.value[np.isfinite(one.value)]
        marks = [*(one.baseline or ()), *([one.threshold] if one.threshold is not None else [])]
        top = max([float(known.max())] if len(known) else [0.0], default=0.0)
        highest[key] = (
            max(highest.get(key, 0.0), top, *marks) if marks else max(highest.get(key, 0.0), top)
        )
    tops = (_ceiling(highest[key], one.unit) for key, one in zip(keys, series, strict=True))
    return tuple(Scale(0.0, top) for top in tops)


def _ceiling(value: float, unit: str) -> float:
    """Above a minute, a time is a round number of minutes."""
    part = 60.0 if unit == "s" and value > 60 else 1.0
    return part * nice_ceiling(value / part)


def span(series: Sequence[Series]) -> tuple[int, int]:
    """The first and the last instant of them all, Unix ns; (0, 0) without any."""
    times = [one.at_ns for one in series if len(one.at_ns)]
    if not times:
        return 0, 0
    return int(min(at[0] for at in times)), int(max(at[-1] for at in times))


# -------------------------------------------------------------------- columns


def columns_of(series: Series, first_ns: int, last_ns: int, width: int) -> Floats:
    """(width,) the mean of what falls in each column's time; NaN where there is no data.

    Where samples lie farther apart than columns, a sample holds until the next is due.
    """
    means = np.full(width, np.nan)
    at, value = series.at_ns, series.value
    if not len(at) or width < 1:
        return means
    step = max((last_ns - first_ns) / max(width - 1, 1), 1.0)
    column = np.clip(np.rint((at - first_ns) / step).astype(np.int64), 0, width - 1)
    known = np.isfinite(value)
    total = np.bincount(column[known], weights=value[known], minlength=width)
    number = np.bincount(column[known], minlength=width)
    means[number > 0] = total[number > 0] / number[number > 0]

    # Columns between two samples: the sample before, for as long as samples usually lie apart.
    due_ns = 1.5 * float(np.median(np.diff(at))) if len(at) > 1 else step
    instant = first_ns + np.arange(width) * step
    before = np.searchsorted(at, instant, side="right") - 1
    carried = (number == 0) & (before >= 0) & (np.bincount(column, minlength=width) == 0)
    carried &= instant - at[np.maximum(before, 0)] <= due_ns
    means[carried] = value[before[carried]]
    return np.where(np.isfinite(means), means, np.nan)


def levels(values: Floats, scale: Scale, steps: int = 8) -> npt.NDArray[np.int64]:
    """(width,) GAP for NaN, ZERO for the bottom of the scale, else 1 to `steps`."""
    share = (values - scale.low) / (scale.high - scale.low)
    level = np.ceil(np.clip(np.nan_to_num(share), 0, 1) * steps - 1e-9).astype(np.int64)
    return np.where(np.isnan(values), GAP, level)


def line(series: Series, values: Floats, scale: Scale) -> list[tuple[str, Kind]]:
    """One line of glyphs, a column each: what lies outside the baseline has its own glyphs."""
    outside = outside_band(series, values)
    return [
        (GAP_GLYPH, "gap") if level == GAP else (BLOCKS[level], "outside" if out else "value")
        for level, out in zip(levels(values, scale).tolist(), outside.tolist(), strict=True)
    ]


def chart(
    series: Series, values: Floats, scale: Scale, height: int
) -> list[list[tuple[str, Kind]]]:
    """`height` lines of glyphs, the top first: bars before the baseline band and the threshold."""
    level = levels(values, scale, 8 * height).tolist()
    outside = outside_band(series, values).tolist()
    rows: list[list[tuple[str, Kind]]] = []
    for bottom in range(8 * (height - 1), -1, -8):
        banded = _in_band(series, scale, bottom, height)
        behind: tuple[str, Kind] = (" ", "band" if banded else "empty")
        if series.threshold is not None and _row_of(series.threshold, scale, height) == bottom // 8:
            behind = (THRESHOLD_GLYPH, "threshold")
        row: list[tuple[str, Kind]] = []
        for high, out in zip(level, outside, strict=True):
            if high == GAP:
                row.append((GAP_GLYPH, "gap") if not bottom else behind)
            elif high > bottom or (not bottom and high == ZERO):
                row.append((BLOCKS[min(high - bottom, 8)], _bar(out, banded)))
            else:
                row.append(behind)
        rows.append(row)
    return rows


def _bar(outside: bool, banded: bool) -> Kind:
    if outside:
        return "outside band" if banded else "outside"
    return "value band" if banded else "value"


def outside_band(series: Series, values: Floats) -> npt.NDArray[np.bool_]:
    """(width,) whether a value lies outside the baseline; NaN does not."""
    if series.baseline is None:
        return np.zeros(len(values), dtype=np.bool_)
    low, high = series.baseline
    return (values < low) | (values > high)


def _row_of(value: float, scale: Scale, height: int) -> int:
    """The line, counted from the bottom, that a value falls on."""
    share = (value - scale.low) / (scale.high - scale.low)
    return min(max(math.ceil(share * height - 1e-9) - 1, 0), height - 1)


def _in_band(series: Series, scale: Scale, bottom: int, height: int) -> bool:
    if series.baseline is None:
        return False
    low, high = series.baseline
    return _row_of(low, scale, height) <= bottom // 8 <= _row_of(high, scale, height)


# ---------------------------------------------------------------------- words


def value_phrase(value: float, unit: str) -> str:
    """A value with its unit; `-` without data."""
    if not math.isfinite(value):
        return "-"
    if unit == "B/s":
        return format_rate(value)
    if unit == "B":
        return format_bytes(value)
    if unit in ("ns", "s"):
        return format_duration(value * (NS_PER_S if unit == "s" else 1)) if value else "0 s"
    number = format_number(round(value, 1) if abs(value) >= 10 else value)
    return f"{number}/s" if unit == "1/s" else f"{number} {unit}".rstrip()


def latest(series: Series) -> float:
    """The last value that was recorded; NaN if none was."""
    known = series.value[np.isfinite(series.value)]
    return float(known[-1]) if len(known) else math.nan


def silent_ns(series: Series, end_ns: int) -> int:
    """For how long before `end_ns` there is no data; 0 while the next sample is merely due."""
    recorded_ns = series.at_ns[np.isfinite(series.value)]
    if not len(recorded_ns) or len(series.at_ns) < 2:
        return 0
    since_ns = int(end_ns - recorded_ns[-1])
    return since_ns if since_ns > 3 * np.median(np.diff(series.at_ns)) else 0


def gap_phrase(silent_ns: int) -> str:
    """`gap 10 min`: to a whole second, minute or hour, as there is little room."""
    unit_ns = next((one for one in _COARSE_NS if silent_ns >= one), NS_PER_S)
    return f"gap {format_duration(max(silent_ns // unit_ns, 1) * unit_ns)}"


def latest_phrase(series: Series, end_ns: int) -> str:
    """The last value with its unit, said to be the last if it is old."""
    value = value_phrase(latest(series), series.unit)
    return f"last {value}" if silent_ns(series, end_ns) else value


def deviation(series: Series) -> Literal["below", "above", ""]:
    """On which side of its baseline the last value lies."""
    if series.baseline is None or not math.isfinite(last := latest(series)):
        return ""
    low, high = series.baseline
    return "below" if last < low else "above" if last > high else ""


def deviation_phrase(series: Series, end_ns: int) -> str:
    """How long there has been no data, and `below baseline 9 to 11 GB/s`."""
    parts = []
    if silent := silent_ns(series, end_ns):
        parts.append(f"no data for the last {format_duration(silent)}")
    if series.baseline is not None:
        parts.append(f"{deviation(series) or 'within'} baseline {_band_phrase(series)}")
    if series.threshold is not None:
        parts.append(f"threshold {value_phrase(series.threshold, series.unit)}")
    if not np.isfinite(series.value).any():
        parts.append("no data")
    return " · ".join(parts)


def _band_phrase(series: Series) -> str:
    """`212 to 403 ops/s`: the unit once, where both ends have the same."""
    low, high = (value_phrase(mark, series.unit) for mark in series.baseline or ())
    number, _, unit = low.rpartition(" ")
    return f"{number if number and high.endswith(f' {unit}') else low} to {high}"


# ----------------------------------------------------------------------- list


def chosen(
    series: Sequence[Series], text: str = "", faults_only: bool = False
) -> tuple[Series, ...]:
    """Those whose name, unit or group holds every word; suspects first, and of these
    the ones outside their baseline; else as they came."""
    words = text.lower().split()
    found = [
        one
        for one in series
        if all(word in f"{one.name} {one.unit} {one.group}".lower() for word in words)
        and (not faults_only or one.suspect or deviation(one))
    ]
    # Suspects outside their baseline come first.
    found.sort(key=lambda one: 2 if not one.suspect else 0 if deviation(one) else 1)
    return tuple(found)
