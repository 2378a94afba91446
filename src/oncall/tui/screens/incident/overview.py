"""The job at a glance: how fast it goes and since when not, a map of its ranks, what was not seen,
and the lines of logs around the moment. Pure: lines of (text, style) pieces.

A style is a role of `models.reading`, a kind of `models.rates` behind the tone of a `Glance`, or
the number of a rank's state behind `state `.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from oncall.render.text.lines import cell_len, cut, padded
from oncall.tui.drawing.states import STATES
from oncall.tui.models import rates
from oncall.tui.screens.incident.picture import Picture, picture_lines
from oncall.views import coverage_words, words
from oncall.views.night import LoggedLine
from oncall.views.rates.buckets import Series
from oncall.views.snapshot import Ranks, RankState, Snapshot

if TYPE_CHECKING:
    pass

Piece = tuple[str, str]
Pieces = list[Piece]

_LABEL, _VALUE = 12, 12  # columns before and after a curve
_SHORT = {"completed operations": "completed", "iteration time": "iteration"}
_MOST_CHART, _LEAST_CHART = 18, 6  # lines of all charts together
_LEAST_OF_ONE = 2  # lines of a chart beside the first
_MOST_MAP = 8
_COUNTED = (RankState.BLAMED, RankState.LATE, RankState.HUNG, RankState.WAITING, RankState.UNKNOWN)


@dataclass(frozen=True, eq=False)
class Glance:
    """What is drawn. `series` None: not yet read; a text: why it cannot be read; `of`: what the
    headline was about that they were read for, if that is known. `moment_ns`: when it began.
    `picture`: of the finding under the cursor."""

    snapshot: Snapshot
    series: tuple[Series, ...] | str | None
    log: tuple[LoggedLine, ...]
    moment_ns: int | None
    of: object = None
    picture: Picture = ()

    @property
    def tone(self) -> str:
        """How curves are drawn: those of another verdict faint, as they may contradict this one;
        those of a sound job without red."""
        if self.of is not None and self.of != about(self.snapshot):
            return "past"
        return "rate" if self.snapshot.diagnosis.result != "none" else "sound"


def about(snapshot: Snapshot) -> object:
    """What the headline says, without numbers, which change all the time."""
    lead = words.leading(snapshot.diagnosis)
    return snapshot.diagnosis.result, lead and (lead.rulebook, lead.verdict)


def narrow(glance: Glance, width: int) -> list[Pieces]:
    """What fits above the story: a line for each curve, the moment, the map, what was not seen."""
    return [
        *_curves(glance, width),
        *_map(glance.snapshot.ranks, width, 2),
        *_unseen(glance.snapshot, width, 1),
    ]


def roomy(glance: Glance, width: int, height: int) -> list[Pieces]:
    """The same in a pane of its own, the curves as charts, and below it the log."""
    ranks = _map(glance.snapshot.ranks, width, _MOST_MAP)
    unseen = _unseen(glance.snapshot, width, 3)
    least = 6 if glance.log else 0
    room = height - len(ranks) - len(unseen) - least - 8
    drawn = picture_lines(glance.picture, width, max(room - _LEAST_CHART, 0))
    room -= len(drawn) + 1 if drawn else 0
    lines = [
        *_charts(glance, width, min(_MOST_CHART, max(_LEAST_CHART, room))),
        [],
        *ranks,
        [],
        *unseen,
    ]
    if drawn:
        lines += [[], *drawn]
    if glance.log:
        lines += [[], *_log(glance, width, height - len(lines) - 2)]
    return lines


# --------------------------------------------------------------------- curves


def _curves(glance: Glance, width: int) -> list[Pieces]:
    if not glance.series or isinstance(glance.series, str):
        return [[(_no_curve(glance.series), "faint")]]
    span = rates.span(glance.series)
    lines = [_curve(one, span, width, glance.tone) for one in glance.series]
    return [*lines, _axis(glance, span, _LABEL, width - _LABEL - _VALUE)]


def _no_curve(series: tuple[Series, ...] | str | None) -> str:
    if series is None:
        return "reading how fast the job goes …"
    if isinstance(series, str):
        return f"How fast the job ran cannot be read: {series}"
    return "How fast the job ran is not recorded."


def _curve(one: Series, span: tuple[int, int], width: int, tone: str) -> Pieces:
    """`iteration ▂▂▂▂▇▇▇  2.1 s`, as wide as there is room."""
    (scale,) = rates.scales([one])
    values = rates.columns_of(one, *span, max(width - _LABEL - _VALUE, 8))
    value = rates.value_phrase(rates.latest(one), one.unit)
    if rates.silent_ns(one, span[1]):
        value = rates.gap_phrase(rates.silent_ns(one, span[1]))
    outside = rates.deviation(one)
    return [
        (padded(_SHORT.get(one.name, one.name), _LABEL), "faint"),
        *_glyphs(rates.line(one, values, scale), tone),
        (f" {value}"[:_VALUE], f"{tone} {'outside' if outside else 'number'}"),
    ]


def _charts(glance: Glance, width: int, height: int) -> list[Pieces]:
    """The curves one below the other over the same time, the first as high as the others together,
    and below them the moment."""
    if not glance.series or isinstance(glance.series, str):
        return [[(_no_curve(glance.series), "faint")]]
    first, *others = glance.series
    span = rates.span(glance.series)
    each = max(height // (2 * len(others)), _LEAST_OF_ONE) if others else 0
    tall = max(height - each * len(others), _LEAST_OF_ONE)
    lines = _chart(first, span, width, tall, glance.tone)
    for one in others:
        lines += _chart(one, span, width, each, glance.tone)
    return [*lines, _axis(glance, span, _LABEL, max(width - _LABEL, 8))]


def _chart(one: Series, span: tuple[int, int], width: int, height: int, tone: str) -> list[Pieces]:
    """What it is now against its baseline, and below that `height` lines with its scale."""
    (scale,) = rates.scales([one])
    marks = [rates.value_phrase(mark, one.unit) for mark in (scale.high, scale.low)]
    values = rates.columns_of(one, *span, max(width - _LABEL, 8))
    said = rates.latest_phrase(one, span[1])
    deviation = rates.deviation_phrase(one, span[1])
    deviation = f" · {deviation}" if deviation else ""
    fits = cell_len(f"{one.name}: {said}{deviation}") <= width
    name = one.name if fits else _SHORT.get(one.name, one.name)
    strong = "strong" if tone != "past" else "faint"
    pieces: Pieces = [(f"{name}: ", "heading"), (said, strong), (deviation, "faint")]
    lines = [_cut(pieces, width)]
    rows = rates.chart(one, values, scale, height)
    for number, row in enumerate(rows):
        mark = marks[0] if not number else marks[1] if number == len(rows) - 1 else ""
        lines.append([(f"{mark:>{_LABEL - 1}} "[:_LABEL], "faint"), *_glyphs(row, tone)])
    return lines


def _glyphs(glyphs: Sequence[tuple[str, rates.Kind]], tone: str) -> Pieces:
    return [
        ("".join(glyph for glyph, _ in run), f"{tone} {kind}")
        for kind, run in groupby(glyphs, key=lambda glyph: glyph[1])
    ]


def _axis(glance: Glance, span: tuple[int, int], indent: int, room: int) -> Pieces:
    """The times at both ends, and `▲ 03:02:11 UTC` below the column in which it began: an end for
    which that leaves no room gives way."""
    first, last = span
    began, end = words.axis_phrases(first, last)
    at_ns, mark, column = glance.moment_ns, "", 0
    if at_ns is not None and first <= at_ns <= last and last > first:
        column = round((at_ns - first) / (last - first) * (room - 1))
        mark = f"▲ {words.instant(at_ns, date=False)}"
        if column + len(mark) > room:
            mark = f"{words.instant(at_ns, date=False)} ▲"
            column = max(column - len(mark) + 1, 0)
    left = began if not mark or column > len(began) else ""
    right = end if not mark or column + len(mark) < room - len(end) else ""
    between = " " * max(column - len(left), 0)
    behind = " " * max(room - len(left + between + mark + right), 0)
    # In a picture of the screen a blank piece keeps its width; blanks beside words do not.
    blank: Pieces = [(" " * indent, "plain")]
    ends: Pieces = [(left, "faint"), (between, "plain"), (mark, "rate outside")]
    return [*blank, *ends, (behind, "plain"), (right, "faint")]


# ------------------------------------------------------------------------ map


def _map(ranks: Ranks, width: int, most: int) -> list[Pieces]:
    """A cell for each rank, or the worst of as many as it takes; nodes lie apart if they fit."""
    if not len(ranks):
        return [[("No calls of any rank are recorded.", "faint")]]
    room = max(width - _LABEL, 8)
    cells, each = _cells(ranks, room, most)
    lines = [cells[at : at + room] for at in range(0, len(cells), room)]
    drawn: list[Pieces] = []
    for number, line in enumerate(lines):
        lead = padded("" if number else f"ranks ×{each}" if each > 1 else "ranks", _LABEL)
        drawn.append([(lead, "faint"), *_states(line)])
    return [*drawn, _legend(ranks, width)]


def _cells(ranks: Ranks, room: int, most: int) -> tuple[list[int], int]:
    """(state by cell, -1 between nodes; how many ranks a cell stands for)."""
    states = ranks.state.tolist()
    apart: list[int] = []
    for place, state in enumerate(states):
        if place and ranks.node[place] != ranks.node[place - 1]:
            apart.append(-1)
        apart.append(state)
    if len(apart) <= room * most:
        return apart, 1
    each = -(-len(states) // (room * most))
    # Missing data never hides a rank that a finding names, a victim never one without data.
    return [int(ranks.state[at : at + each].max()) for at in range(0, len(states), each)], each


def _states(cells: Sequence[int]) -> Pieces:
    return [
        ((" " if state < 0 else STATES[state].dot) * len(list(run)), f"state {state}")
        for state, run in groupby(cells)
    ]


def _legend(ranks: Ranks, width: int) -> Pieces:
    """`█ 13 blamed  ▪ 31 hung`: the culprit by number."""
    pieces: Pieces = [(" " * _LABEL, "plain")]
    for state in _COUNTED:
        members = ranks.rank[ranks.state == state]
        if not len(members):
            continue
        look = STATES[state]
        who = words.ranks_phrase(members.tolist()) if state == RankState.BLAMED else len(members)
        said = f"{who:,} {look.name}" if isinstance(who, int) else cut(who, 40)
        pieces.append((f"{look.dot} {said}  ", f"state {int(state)}"))
    if len(pieces) == 1:
        pieces.append((f"{STATES[0].dot} all {len(ranks):,} running  ", "state 0"))
    return _cut(pieces, width)


# ---------------------------------------------------------------- what is not


def _unseen(snapshot: Snapshot, width: int, most: int) -> list[Pieces]:
    """Ranks and nodes without evidence, and kinds of evidence that were not recorded."""
    coverage = snapshot.diagnosis.coverage
    said = [coverage_words.gap_phrase(gap) for gap in coverage.gaps]
    if lacking := coverage_words.unseen_phrase(coverage.skipped_rules):
        said.append(lacking)
    if not said:
        whole: Pieces = [(padded("not seen", _LABEL), "faint"), ("nothing is missing", "plain")]
        return [_cut(whole, width)]
    text, lines = "; ".join(said), list[Pieces]()
    for number, part in enumerate(_wrapped(text, max(width - _LABEL, 8), most)):
        lead = "" if number else "not seen"
        lines.append([(padded(lead, _LABEL), "faint"), (part, "plain")])
    return lines


def _wrapped(text: str, room: int, most: int) -> list[str]:
    lines = [""]
    for word in text.split():
        if lines[-1] and cell_len(lines[-1]) + 1 + cell_len(word) > room:
            if len(lines) == most:
                lines[-1] = cut(f"{lines[-1]} {word}", room)
                return lines
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return [cut(line, room) for line in lines]


# ------------------------------------------------------------------------ log


def _log(glance: Glance, width: int, height: int) -> list[Pieces]:
    """The lines around the moment, as many as fit: more of what came after."""
    if height < 2:
        return []
    at_ns = glance.moment_ns
    before = sum(one.at_ns is not None and at_ns is not None and one.at_ns < at_ns
                 for one in glance.log)  # fmt: skip
    first = max(0, min(before - height // 3, len(glance.log) - height + 1))
    when = f", around {words.instant(at_ns, date=False)}" if at_ns is not None else ""
    lines: list[Pieces] = [[(f"Log{when}", "heading")]]
    for one in glance.log[first : first + height - 1]:
        lead = f"{one.clock} {one.source}"
        role = "critical" if one.problem else "plain"
        lines.append(_cut([(f"{lead}  ", "faint"), (one.text, role)], width))
    return lines


def _cut(pieces: Pieces, width: int) -> Pieces:
    kept: Pieces = []
    for text, style in pieces:
        if width <= 0:
            break
        kept.append((cut(text, width), style))
        width -= cell_len(kept[-1][0])
    return kept
