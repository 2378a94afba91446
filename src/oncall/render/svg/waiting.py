"""A waiting graph as an SVG: a row a sender, steps to scale, arrows along the critical path."""

from __future__ import annotations

from collections.abc import Iterator

from oncall.core.units import format_duration
from oncall.render.svg import document as picture
from oncall.render.svg.document import BLUE, GREY, INK, LIGHT_BLUE, LINE, PALE, RED
from oncall.render.text.waiting import (
    lane_name,
    steps_phrase,
    times_phrase,
    title,
    wait_phrase,
    way_phrase,
)
from oncall.views.network.waiting import Lane, Step, WaitingGraph, chain

_WIDTH, _LEFT, _RIGHT, _TOP = 1000.0, 150.0, 24.0, 92.0
_ROW, _GAP = 30.0, 8.0
_DIGIT = 7.0  # a digit's width
_MOST_LINKS = 8


def waiting_svg(graph: WaitingGraph) -> str:
    """Rows of steps, with what is beyond the expected time hatched; below, the path in words."""
    bottom = _TOP + len(graph.lanes) * (_ROW + _GAP)
    links_below = list(_chain(graph, bottom + 48))
    links = len(chain(graph.path, _MOST_LINKS))
    body = [picture.text(16, 28, title(graph), size=17, bold=True), *_legend(graph)]
    body += _axis(graph, bottom)
    for number, lane in enumerate(graph.lanes):
        body += _row(graph, lane, _row_top(number))
    body += _arrows(graph)
    return picture.network_document(
        _WIDTH, bottom + 64 + 20 * links, title(graph), [*body, *links_below]
    )


def _row(graph: WaitingGraph, lane: Lane, top: float) -> Iterator[str]:
    yield picture.box(_LEFT, top, _WIDTH - _LEFT - _RIGHT, _ROW, fill=PALE)
    ink = RED if lane.blamed else INK
    yield picture.text(16, top + 20, lane_name(lane), colour=ink, bold=lane.blamed)
    for step in sorted(lane.steps, key=lambda one: (one.critical, one.late)):
        yield from _step(graph, step, top)


def _step(graph: WaitingGraph, step: Step, top: float) -> Iterator[str]:
    x = _x(graph, step.started_ns)
    width = max(_x(graph, step.ended_ns) - x, 1.0)
    hint = f"step {step.step} {step.pair}: {format_duration(step.took_ns)}; {wait_phrase(step)}"
    fill = BLUE if step.critical else LIGHT_BLUE
    edge = INK if step.critical else "white"
    yield picture.box(x, top + 3, width, _ROW - 6, fill=fill, edge=edge, hint=hint)
    if step.late and step.expected_ns is not None:
        due = min(max(_x(graph, step.started_ns + int(step.expected_ns)), x), x + width)
        pattern = "beyond" if step.critical else "beside"
        yield picture.box(due, top + 3, x + width - due, _ROW - 6, fill="white")
        yield picture.box(
            due, top + 3, x + width - due, _ROW - 6, fill=f"url(#{pattern})", edge=edge, hint=hint
        )
    if width >= len(str(step.step)) * _DIGIT + 6:
        ink = "white" if step.critical else INK
        yield picture.text(x + 5, top + 20, str(step.step), size=12, colour=ink, bold=step.critical)


def _arrows(graph: WaitingGraph) -> Iterator[str]:
    """Where the path goes on at another rank, which had to wait for what came from there."""
    for here, step, there, then in graph.arrows():
        down = there > here
        y1 = _row_top(here) + (_ROW - 3 if down else 3)
        y2 = _row_top(there) + (1 if down else _ROW - 1)
        x1, x2 = _x(graph, step.ended_ns), _x(graph, then.started_ns)
        yield picture.line(x1, y1, x2 + 1, y2, colour=INK, thick=2, head="ink")


def _legend(graph: WaitingGraph) -> Iterator[str]:
    steps = [step for lane in graph.lanes for step in lane.steps]
    parts = [("on the critical path", BLUE), ("off it", LIGHT_BLUE)]
    if any(step.late and step.critical for step in steps):
        parts.append(("over the expected time", "url(#beyond)"))
    if any(step.late and not step.critical for step in steps):
        parts.append(("the same off the path", "url(#beside)"))
    x = 16.0
    for label, fill in parts:
        yield picture.box(x, 46, 16, 14, fill=fill, edge=LINE)
        yield picture.text(x + 22, 57, label, size=12, colour=GREY)
        x += 44 + 6.6 * len(label)
    if graph.left_out:
        more = f"{graph.left_out:,} more ranks not shown"
        yield picture.text(_WIDTH - _RIGHT, 57, more, size=12, colour=GREY, anchor="end")


def _axis(graph: WaitingGraph, bottom: float) -> Iterator[str]:
    """Time since the collective began."""
    first, last = graph.shown_ns
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        x = _LEFT + (_WIDTH - _LEFT - _RIGHT) * share
        since = first - graph.collective.started_ns + (last - first) * share
        mark = format_duration(since) if since >= 1 else "0"
        anchor = "start" if share == 0 else "end" if share == 1 else "middle"
        yield picture.line(x, _TOP - 6, x, bottom - 2, colour=LINE)
        yield picture.text(x, bottom + 14, mark, size=11, colour=GREY, anchor=anchor)


def _chain(graph: WaitingGraph, top: float) -> Iterator[str]:
    """The critical path in words, late steps alone."""
    yield picture.text(
        16, top, "Critical path; each step waits for the one above it:", bold=True, size=13
    )
    for number, link in enumerate(chain(graph.path, _MOST_LINKS), 1):
        colour = RED if link.late else INK
        phrases = (steps_phrase(link), way_phrase(link), times_phrase(link))
        for x, part in zip((28, 130, 470), phrases, strict=True):
            yield picture.text(x, top + 20 * number, part, colour=colour, bold=link.late)


def _row_top(number: int) -> float:
    return _TOP + number * (_ROW + _GAP)


def _x(graph: WaitingGraph, at_ns: int) -> float:
    first, last = graph.shown_ns
    share = (at_ns - first) / max(last - first, 1)
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * min(max(share, 0.0), 1.0)
