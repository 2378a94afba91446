"""Rate curves and traffic maps as lines of text, at most `width` columns wide.

Whatever is drawn says its scale, and what a blank and a dot mean.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from oncall.core.nodeset import fold_ranks
from oncall.core.units import format_bytes, format_duration, format_rate
from oncall.render.text.lines import Line, line, wrapped_line
from oncall.views.traffic.rate_curves import (
    OperationTraffic,
    RateCurves,
    Sender,
    TrafficMap,
    compact,
    folded,
    rate_curves,
)

_BLOCKS = " ▁▂▃▄▅▆▇█"
_SHADES = "·░▒▓█"
_FIGURES = 21  # of a line of curves: rate and time, with what parts them
_LEAST_BINS = 16


def curve_lines(
    traffic: OperationTraffic, width: int = 80, most: int = 64, resolution_ns: int | None = None
) -> list[Line]:
    """A line for each rank with its curve, actual rate and actual communication time."""
    shown = compact(traffic, most)
    label = max(len(f"rank {one.rank}") for one in shown.senders) + 2
    bins = max(width - label - _FIGURES - 2, _LEAST_BINS)
    curves = rate_curves(shown, bins, resolution_ns)
    bins = curves.rate.shape[1]
    lines = [
        traffic.operation.title,
        f"{format_duration(curves.resolution_ns)} per column, from 0 to "
        f"{format_rate(curves.top_bytes_per_s)}",
    ]
    for row, one in enumerate(shown.senders):
        mark = "▶" if one.rank in traffic.blamed else " "
        lines.append(
            f"{mark} {f'rank {one.rank}':<{label - 1}}{_curve(curves, row)}{_figures(one)}".rstrip()
        )
    lines.append(" " * (label + 1) + _axis(curves, bins))
    lines += _legend(traffic, shown)
    return [part for text in lines for part in wrapped_line(line(text), width, 2)]


def _curve(curves: RateCurves, row: int) -> str:
    """One curve in glyphs, its start and end in brackets."""
    one, rates = curves.traffic.senders[row], curves.rate[row]
    share = np.nan_to_num(rates / curves.top_bytes_per_s)
    level = np.ceil(np.clip(share, 0, 1) * (len(_BLOCKS) - 1) - 1e-9).astype(int)
    glyphs = [
        "·" if math.isnan(rate) else _BLOCKS[high]
        for rate, high in zip(rates.tolist(), level.tolist(), strict=True)
    ]
    if one.started_ns is not None:
        _put(glyphs, curves.bin_of(one.started_ns) - 1, "[")
    if one.ended_ns is not None:
        _put(glyphs, curves.bin_of(one.ended_ns - 1) + 1, "]")
    return "".join(glyphs)


def _put(glyphs: list[str], place: int, glyph: str) -> None:
    if 0 <= place < len(glyphs):
        glyphs[place] = glyph


def _figures(one: Sender) -> str:
    if one.started_ns is None:
        return "  did not start"
    rate = format_rate(one.rate_bytes_per_s) if one.active_ns else "-"
    least = ">=" if one.undercount else ""
    took = format_duration(one.active_ns) if one.ended_ns is not None else "not finished"
    return f" {least + rate:>10} {took:>8}"


def _axis(curves: RateCurves, bins: int) -> str:
    """Time from the operation's first byte, at the left, the middle and the right."""
    zero = max(curves.bin_of(curves.traffic.first_ns), 0)
    axis = [" "] * (bins + 1)
    for place in dict.fromkeys((zero, (zero + bins) // 2, bins - 1)):
        since_ns = (place - zero) * curves.resolution_ns
        text = format_duration(since_ns) if since_ns else "0"
        at = place if place < bins - 1 else max(bins - len(text), 0)
        if not "".join(axis[at : at + len(text) + 1]).strip():
            axis[at : at + len(text)] = list(text)
    return "".join(axis).rstrip()


def _legend(traffic: OperationTraffic, shown: OperationTraffic) -> Iterator[str]:
    parts = ["▶ blamed"] if traffic.blamed else []
    parts += ["[ ] its start and end", "blank: nothing sent"]
    if not all(one.recorded for one in shown.senders):
        parts.append("· no data")
    if any(one.undercount for one in shown.senders):
        parts.append(">= some events were lost")
    yield "; ".join([*parts, "at the right: rate and time without gaps"])
    left_out = {one.rank for one in traffic.senders} - {one.rank for one in shown.senders}
    if left_out:
        yield f"not shown: {len(left_out)} more ranks, {fold_ranks(left_out)}"


# ------------------------------------------------------------------------ map


def map_lines(traffic: TrafficMap, width: int = 80) -> list[Line]:
    """Rows send to columns; a cell is shaded by its bytes against the fullest."""
    if not traffic.groups:
        return [line(f"{traffic.title}: no traffic between known ranks")]
    shown = folded(traffic, max((width - 34) // 2, 8))
    label = max(len(one) for one in shown.labels)
    top = int(shown.bytes.max(initial=0))
    lines = [
        f"Traffic between ranks in {shown.title}",
        f"rows send to columns, a cell up to {format_bytes(top)}: {' '.join(_SHADES)}, "
        f"{_SHADES[0]} nothing",
    ]
    columns = len(shown.groups)
    lines.append(" " * (label + 3) + f"{'to':<{2 * columns}}{'sent':>10}{'received':>11}")
    received, median = shown.received(), float(np.median(shown.received()))
    level = np.ceil(shown.bytes / max(top, 1) * (len(_SHADES) - 1)).astype(int)
    for row, name in enumerate(shown.labels):
        mark = "▶" if shown.is_blamed(row) else " "
        cells = "".join(_SHADES[at] * 2 for at in level[row].tolist())
        times = received[row] / median if median else math.nan
        uneven = f" {times:4.2g} x" if math.isfinite(times) and abs(times - 1) >= 0.1 else ""
        totals = (shown.bytes[row].sum(), received[row])
        sent, got = (format_bytes(int(total)) for total in totals)
        lines.append(f"{mark} {name:>{label}} {cells}{sent:>10}{got:>11}{uneven}")
    each = len(shown.groups[0])
    notes = [f"each row and column is {each} ranks"] if each > 1 else []
    if traffic.blamed:
        notes.append("▶ blamed")
    if traffic.unplaced_bytes:
        notes.append(f"{format_bytes(traffic.unplaced_bytes)} went to unknown peers")
    if any(text.endswith(" x") for text in lines):
        notes.append("x: relative to the median")
    lines += ["; ".join(notes)] if notes else []
    return [part for text in lines for part in wrapped_line(line(text), width, 2)]
