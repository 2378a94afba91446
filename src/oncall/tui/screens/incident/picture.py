"""The picture of a finding: members against operations, or the lines of its report.
Pure: lines of (text, style) pieces, as in `overview`.
"""

from __future__ import annotations

from itertools import groupby

from oncall.render.text.lines import cut, padded
from oncall.tui.drawing.states import STATES
from oncall.tui.screens.communicators import round_grid
from oncall.views.ranks.communicators import CommunicatorView

Pieces = list[tuple[str, str]]
Picture = CommunicatorView | tuple[str, ...]
_LABEL = 22  # columns before the operations
_AROUND = 3  # lines of members: a heading, an axis, and the operation in words
LEAST = _AROUND + 2


def picture_lines(picture: Picture, width: int, height: int) -> list[Pieces]:
    """As many as fit; none where that would say nothing."""
    if height < LEAST:
        return []
    if isinstance(picture, CommunicatorView):
        return _members(picture, width, height)
    return [[(cut(one, width), "plain")] for one in picture[:height]]


def _members(view: CommunicatorView, width: int, height: int) -> list[Pieces]:
    """A line for members that did the same, those that have not entered first."""
    column = round_grid.finding_column(view)
    if column is None:
        return []
    rows = round_grid.member_rows(view)
    room = height - _AROUND
    shown = rows if len(rows) <= room else rows[: room - 1]
    first, last = round_grid.window(len(view.seqs), max(width - _LABEL, 8), column)
    title = f"{view.summary.label}: members against its last operations"
    lines: list[Pieces] = [[(cut(title, width), "heading")]]
    axis = round_grid.axis(view, first, last, column)
    lines.append([(" " * _LABEL, "plain"), (axis.replace("^", " "), "faint")])
    for row in shown:
        states = round_grid.shown_states(row, column)[first:last]
        cells = [
            (STATES[state].dot * len(list(run)), f"state {int(state)}")
            for state, run in groupby(states)
        ]
        lines.append([(padded(cut(row.label, _LABEL - 1), _LABEL), "plain"), *cells])
    if hidden := sum(len(row.ranks) for row in rows[len(shown) :]):
        lines.append([(f"and {hidden:,} more members, on screen 3", "faint")])
    said = round_grid.round_lines(view, column)[0]
    return [*lines, [(cut(said, width), "plain")]]
