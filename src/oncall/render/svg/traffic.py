"""Rate curves and traffic maps as SVG: drawn here, without a library, for a ticket or a page.

Black on white with one accent for who is blamed, who is marked in words too.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

import numpy as np

from oncall.core.printable import clean
from oncall.core.units import format_bytes, format_duration, format_rate
from oncall.render.svg import document as picture
from oncall.views.traffic.rate_curves import (
    OperationTraffic,
    RateCurves,
    Sender,
    TrafficMap,
    folded,
    rate_curves,
    round_up,
)

_WIDTH, _LEFT, _RIGHT, _TOP = 960, 170, 170, 64
_ROW, _GAP = 46, 10
_MOST_ROWS = 64
_MOST_CELLS = 64
_BLUE, _RED, _GREY, _PALE = "#3b6ea5", "#c0392b", "#666666", "#eef2f6"


def curves_svg(traffic: OperationTraffic, resolution_ns: int | None = None) -> str:
    """A row for each rank: rate over time on one scale, start and end as lines."""
    width = _WIDTH - _LEFT - _RIGHT
    curves = rate_curves(traffic, 4 * width if resolution_ns else width, resolution_ns)
    shown = traffic.senders[:_MOST_ROWS]
    height = _TOP + len(shown) * (_ROW + _GAP) + 40
    top = format_rate(curves.top_bytes_per_s)
    body = [
        picture.text(16, 26, traffic.operation.title, size=16, bold=True),
        picture.text(
            16, 46,
            f"{format_duration(curves.resolution_ns)} per point, each row from 0 to {top}; "
            "lines: start and end; at the right: rate and time without gaps", colour=_GREY,
        ),
    ]  # fmt: skip
    for row, one in enumerate(shown):
        body += _row(curves, row, one, _TOP + row * (_ROW + _GAP))
    body += _time_axis(curves, _TOP + len(shown) * (_ROW + _GAP))
    if left_out := len(traffic.senders) - len(shown):
        body.append(picture.text(16, height - 8, f"{left_out} more ranks not shown", colour=_GREY))
    return picture.document(_WIDTH, height, traffic.operation.title, body)


def _row(curves: RateCurves, row: int, one: Sender, top: float) -> Iterator[str]:
    blamed = one.rank in curves.traffic.blamed
    colour, bottom = _RED if blamed else _BLUE, top + _ROW
    width = _WIDTH - _LEFT - _RIGHT
    yield f'<rect x="{_LEFT}" y="{top}" width="{width}" height="{_ROW}" fill="{_PALE}"/>'
    name = f"rank {one.rank}" + (", blamed" if blamed else "")
    ink = _RED if blamed else "black"
    yield picture.text(16, top + 20, name, bold=blamed, colour=ink)
    yield picture.text(16, top + 36, one.node, size=11, colour=_GREY)
    yield from _areas(curves, row, colour, bottom)
    for at_ns in (one.started_ns, one.ended_ns):
        if at_ns is not None:
            x = _x(curves, at_ns)
            yield (
                f'<line x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{bottom}" stroke="{colour}" '
                'stroke-dasharray="3 2"/>'
            )
    right = _WIDTH - _RIGHT + 12
    if one.started_ns is None:
        yield picture.text(right, top + 20, "did not start", colour=ink)
        return
    least = "at least " if one.undercount else ""
    yield picture.text(right, top + 20, least + format_rate(one.rate_bytes_per_s), colour=ink)
    over = format_duration(one.active_ns) if one.ended_ns is not None else "not finished"
    yield picture.text(right, top + 36, f"{over}, {format_bytes(one.bytes)}", size=11, colour=_GREY)


def _areas(curves: RateCurves, row: int, colour: str, bottom: float) -> Iterator[str]:
    """The curve as steps, cut where nothing was sent, so that a gap is a gap."""
    rate = curves.rate[row]
    if not np.isfinite(rate).any():
        yield picture.text(_LEFT + 8, bottom - 18, "no data", colour=_GREY)
        return
    busy = np.concatenate([[False], rate > 0, [False]])
    turns = np.flatnonzero(busy[1:] != busy[:-1])
    for begin, end in zip(turns[::2].tolist(), turns[1::2].tolist(), strict=True):
        points = []
        for place in range(begin, end):
            y = bottom - _ROW * min(float(rate[place]) / curves.top_bytes_per_s, 1.0)
            points += [
                f"{_bin_x(curves, place):.1f} {y:.1f}",
                f"{_bin_x(curves, place + 1):.1f} {y:.1f}",
            ]
        path = " L ".join(points)
        yield (
            f'<path d="M {_bin_x(curves, begin):.1f} {bottom:.1f} L {path} '
            f'L {_bin_x(curves, end):.1f} {bottom:.1f} Z" fill="{colour}"/>'
        )


def _bin_x(curves: RateCurves, place: int) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * place / len(curves.rate[0])


def _x(curves: RateCurves, at_ns: int) -> float:
    place = (at_ns - curves.first_ns) / curves.resolution_ns / len(curves.rate[0])
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * min(max(place, 0.0), 1.0)


def _time_axis(curves: RateCurves, top: float) -> Iterator[str]:
    """Time since the first byte of the operation."""
    first_ns = curves.traffic.first_ns
    shown_ns = curves.first_ns + curves.resolution_ns * len(curves.rate[0]) - first_ns
    step_ns = max(round(round_up(shown_ns / 6)), 1)
    for since_ns in range(0, shown_ns, step_ns):
        label = format_duration(since_ns) if since_ns else "0"
        x = _x(curves, first_ns + since_ns)
        yield picture.text(x, top + 14, label, size=11, colour=_GREY, anchor="middle")


# ------------------------------------------------------------------------ map


def map_svg(traffic: TrafficMap) -> str:
    """Rows send to columns; the darker, the more, against the fullest cell."""
    shown = folded(traffic, _MOST_CELLS)
    count = max(len(shown.groups), 1)
    cell = min(max(640 // count, 10), 48)
    left, top, side = 120, 96, cell * count
    size = int(np.clip(cell - 3, 7, 12))
    most = int(shown.bytes.max(initial=0))
    body = [
        picture.text(16, 26, f"Traffic between ranks in {shown.title}", size=16, bold=True),
        picture.text(16, 46, f"rows send to columns; black is {format_bytes(most)}", colour=_GREY),
        f'<rect x="{left}" y="{top}" width="{side}" height="{side}" fill="{_PALE}"/>',
    ]
    received = shown.received()
    for row, name in enumerate(shown.labels):
        blamed = shown.is_blamed(row)
        ink = _RED if blamed else "black"
        y, x = top + row * cell, left + row * cell
        mark = f"{name}, blamed" if blamed else name
        middle = cell / 2 + size / 3
        totals = f"{format_bytes(int(shown.bytes[row].sum()))} sent, "
        totals += f"{format_bytes(int(received[row]))} received"
        body += [
            picture.text(
                left - 6, y + middle, mark, size=size, colour=ink, anchor="end", bold=blamed
            ),
            picture.text(left + side + 8, y + middle, totals, size=size, colour=_GREY),
            f'<text transform="translate({x + middle:.1f} {top - 6}) rotate(-90)" '
            f'font-size="{size}" fill="{ink}">{escape(clean(name))}</text>',
        ]
        for column, sent in enumerate(shown.bytes[row].tolist()):
            if sent:
                grey = 225 - round(205 * sent / most)
                body.append(
                    f'<rect x="{left + column * cell}" y="{y}" width="{cell - 1}" '
                    f'height="{cell - 1}" fill="rgb({grey},{grey},{grey})"/>'
                )
    if traffic.unplaced_bytes:
        unplaced = f"{format_bytes(traffic.unplaced_bytes)} went to unknown peers"
        body.append(picture.text(16, top + side + 24, unplaced, colour=_GREY))
    return picture.document(left + side + 280, top + side + 40, shown.title, body)
