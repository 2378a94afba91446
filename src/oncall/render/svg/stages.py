"""The timeline of an iteration as SVG: drawn here, without a library, for a ticket or a page.

Colours are Okabe and Ito's, distinct with any common colour blindness, and nothing depends on
them: boxes are lettered, the critical path is outlined and joined, blamed boxes say so in words.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from oncall.core.printable import clean
from oncall.core.units import format_duration
from oncall.render.svg import document as picture
from oncall.render.svg.document import INK
from oncall.render.text.stages import blamed_sentences, label, lane_name, length_phrase, title
from oncall.views.stages.timeline import (
    LETTERS,
    MEANINGS,
    TRANSFERS,
    Box,
    Lane,
    Timeline,
    compact,
    idle_share,
)

_WIDTH, _LEFT, _RIGHT, _TOP = 1200, 150, 64, 86
_ROW, _GAP = 34, 12
_MOST_ROWS = 64
_GREY, _PALE, _RED = "#5f6570", "#f1f1ec", "#d55e00"
_FILLS = {
    "forward": ("#56b4e9", "#a5d6f3"),  # of even and odd chunks
    "backward": ("#009e73", "#7fcdb6"),
    "transfer": ("#e69f00",) * 2,
    "parameters": ("#cc79a7",) * 2,
    "gradients": ("#cc79a7",) * 2,
    "embedding": ("#e7bcd3",) * 2,
    "optimizer": ("#f0e442",) * 2,
    "garbage": ("#999999",) * 2,
}
_OTHER = ("#bbbbbb",) * 2
_PATTERNS = (
    f'<pattern id="beyond" width="6" height="6" patternUnits="userSpaceOnUse" '
    f'patternTransform="rotate(45)"><rect width="3" height="6" fill="{_RED}"/></pattern>'
    '<pattern id="transfer" width="4" height="4" patternUnits="userSpaceOnUse">'
    '<rect width="2" height="4" fill="#9aa0aa"/></pattern>'
)
_LETTER_SIZES = (11, 9)
_LETTER_WIDTH = 0.64  # of a character, of its size
_NARROW = 4.0  # of boxes without an edge, which would leave nothing of them


def timeline_svg(timeline: Timeline) -> str:
    """A row for each lane, boxes to scale, the critical path joined from row to row."""
    shown = compact(timeline, _MOST_ROWS)
    bottom = _TOP + len(shown.lanes) * (_ROW + _GAP)
    notes = list(blamed_sentences(shown, most=6))
    height = bottom + 44 + 20 * len(notes) + (20 if shown.left_out else 0)
    body = [
        picture.text(16, 28, title(timeline), size=17, bold=True),
        *_legend(shown),
        *_axis(shown, bottom),
    ]
    for number, lane in enumerate(shown.lanes):
        body += _row(shown, lane, _row_top(number))
    body += _path(shown)
    for number, lane in enumerate(shown.lanes):
        body += _blamed(shown, lane, _row_top(number))
    for number, note in enumerate(notes):
        text = f"Blamed: {note}"
        body.append(picture.text(16, bottom + 48 + 20 * number, text, colour=_RED, bold=True))
    if shown.left_out:
        text = f"{shown.left_out} more ranks not shown"
        body.append(picture.text(16, height - 8, text, colour=_GREY))
    return picture.document(_WIDTH, height, title(timeline), body, _PATTERNS)


def _row(timeline: Timeline, lane: Lane, top: float) -> Iterator[str]:
    width = _WIDTH - _LEFT - _RIGHT
    yield f'<rect x="{_LEFT}" y="{top}" width="{width}" height="{_ROW}" fill="{_PALE}"/>'
    ink = _RED if lane.blamed else INK
    line = top + (15 if lane.node else 22)
    yield picture.text(16, line, lane_name(timeline, lane, 0), colour=ink, bold=lane.blamed)
    if lane.node:
        yield picture.text(16, top + 29, clean(lane.node), size=10, colour=_GREY)
    for box in sorted(lane.boxes, key=lambda one: one.task not in TRANSFERS):
        yield from _box(timeline, lane, box, top)
    share = f"{idle_share(timeline, lane):.0%}"
    yield picture.text(_WIDTH - 12, top + 22, share, size=12, colour=_GREY, anchor="end")


def _box(timeline: Timeline, lane: Lane, box: Box, top: float) -> Iterator[str]:
    x, width = _place(timeline, box)
    description = f"{box.name} on stage {lane.stage}, rank {lane.rank}: {length_phrase(box)}"
    hint = picture.title(description)
    if box.task in TRANSFERS:
        yield (
            f'<rect x="{x:.1f}" y="{top + _ROW - 5}" width="{width:.1f}" height="5" '
            f'fill="url(#transfer)">{hint}</rect>'
        )
        return
    fill = _FILLS.get(box.task, _OTHER)[box.chunk % 2]
    edge = 'stroke="white"' if width > _NARROW else ""
    if box.critical:
        edge = f'stroke="{INK}" stroke-width="2"'
    yield (
        f'<rect x="{x:.1f}" y="{top + 2}" width="{width:.1f}" height="{_ROW - 4}" '
        f'fill="{fill}" {edge}>{hint}</rect>'
    )
    if not box.blamed:
        yield from _lettered(timeline, box, x, width, top)


def _lettered(timeline: Timeline, box: Box, x: float, width: float, top: float) -> Iterator[str]:
    """The box's letter and number in the middle of a room, if that is wide enough; the chunk, shown
    by its shade too, only where there is room for it."""
    for chunks in dict.fromkeys((timeline.chunks, 1)):
        text = label(box, chunks)
        for size in _LETTER_SIZES:
            if width >= len(text) * size * _LETTER_WIDTH + 2:
                middle, bold = x + width / 2, box.critical
                yield picture.text(middle, top + 21, text, size=size, bold=bold, anchor="middle")
                return


def _blamed(timeline: Timeline, lane: Lane, top: float) -> Iterator[str]:
    """Over everything: what is beyond the expected time, hatched, and a frame around the box."""
    for box in lane.boxes:
        if not box.blamed:
            continue
        x, width = _place(timeline, box)
        if box.expected_ns is None:
            yield from _lettered(timeline, box, x, width, top)
        else:
            due = min(max(_x(timeline, box.started_ns + box.expected_ns) - x, 0), width)
            yield (
                f'<rect x="{x + due:.1f}" y="{top + 2}" width="{width - due:.1f}" '
                f'height="{_ROW - 4}" fill="url(#beyond)"/>'
            )
            lettered = list(_lettered(timeline, box, x, due, top))
            if not lettered and width > 2 * _ROW:  # on the hatching then, on white
                text = label(box, timeline.chunks)
                middle, wide = x + width / 2, 7.5 * len(text) + 8
                lettered = [
                    f'<rect x="{middle - wide / 2:.1f}" y="{top + 8}" width="{wide:.1f}" '
                    f'height="18" fill="white"/>',
                    picture.text(middle, top + 21, text, size=11, bold=True, anchor="middle"),
                ]
            yield from lettered
        yield (
            f'<rect x="{x - 1:.1f}" y="{top - 1}" width="{width + 2:.1f}" height="{_ROW + 2}" '
            f'fill="none" stroke="{_RED}" stroke-width="3"/>'
        )


def _path(timeline: Timeline) -> Iterator[str]:
    """From each critical box to the next one, where that is on another row."""
    path = timeline.path()
    for (row, box), (after, then) in pairwise(path):
        one_pipeline = timeline.lanes[row].replica == timeline.lanes[after].replica
        if row == after or box.ended_ns is None or not one_pipeline:
            continue
        down = after > row
        y1 = _row_top(row) + (_ROW - 2 if down else 2)
        y2 = _row_top(after) + (2 if down else _ROW - 2)
        x1, x2 = _x(timeline, box.ended_ns), _x(timeline, then.started_ns)
        yield (
            f'<line x1="{x1:.1f}" y1="{y1}" x2="{x2:.1f}" y2="{y2}" stroke="{INK}" '
            'stroke-width="2"/>'
        )


def _legend(timeline: Timeline) -> Iterator[str]:
    """What colours and outlines mean, of the tasks that are there."""
    tasks = {box.task for box in timeline.boxes()}
    x = 16.0
    for task in LETTERS:
        if task not in tasks:
            continue
        fill = _FILLS.get(task, _OTHER)[0]
        yield f'<rect x="{x:.0f}" y="46" width="14" height="14" fill="{fill}"/>'
        yield picture.text(x + 19, 57, MEANINGS[task], size=12, colour=_GREY)
        x += 34 + 6.4 * len(MEANINGS[task])
    if tasks & set(TRANSFERS):
        yield f'<rect x="{x:.0f}" y="51" width="14" height="5" fill="url(#transfer)"/>'
        yield picture.text(x + 19, 57, "send or receive", size=12, colour=_GREY)
        x += 34 + 6.4 * 15
    if timeline.chunks > 1:
        paler = "paler: odd chunks"
        yield picture.text(x, 57, paler, size=12, colour=_GREY)
        x += 20 + 6.4 * len(paler)
    if timeline.path():
        yield (
            f'<rect x="{x:.0f}" y="46" width="14" height="14" fill="none" stroke="{INK}" '
            'stroke-width="2"/>'
        )
        yield picture.text(x + 19, 57, "critical path", size=12, colour=_GREY)
    right = "without a task"
    yield picture.text(_WIDTH - 12, 76, right, size=10, colour=_GREY, anchor="end")


def _axis(timeline: Timeline, bottom: float) -> Iterator[str]:
    """Time since the iteration began, at round places."""
    first, last = timeline.shown_ns
    step = _round_step((last - first) / 8)
    for since in range(0, last - first + 1, step):
        x = _x(timeline, first + since)
        yield (
            f'<line x1="{x:.1f}" y1="{_TOP - 4}" x2="{x:.1f}" y2="{bottom - 4}" stroke="#dddddd"/>'
        )
        text = format_duration(since) if since else "0"
        yield picture.text(x, bottom + 14, text, size=11, colour=_GREY, anchor="middle")


def _round_step(least_ns: float) -> int:
    """The least of 1, 2, 5, 10, 20, ... ns that is no shorter."""
    power = 1
    while True:
        for digit in (1, 2, 5):
            if digit * power >= least_ns:
                return digit * power
        power *= 10


def _row_top(number: int) -> float:
    return _TOP + number * (_ROW + _GAP)


def _place(timeline: Timeline, box: Box) -> tuple[float, float]:
    """Where a box begins and how wide it is: enough to be seen."""
    x = _x(timeline, box.started_ns)
    end = timeline.shown_ns[1] if box.ended_ns is None else box.ended_ns
    return x, max(_x(timeline, end) - x, 2.0)


def _x(timeline: Timeline, at_ns: int) -> float:
    first, last = timeline.shown_ns
    share = (at_ns - first) / (last - first)
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * min(max(share, 0.0), 1.0)
