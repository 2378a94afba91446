"""Lines between rows of names on a canvas of characters: down, across and down, each on a row of
its own, so that no two can be taken for one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from oncall.render.text.spans import Line, Style, line_of

_UP, _DOWN, _LEFT, _RIGHT = 1, 2, 4, 8
_SHAPES = (_UP | _DOWN, _LEFT | _RIGHT, _DOWN | _RIGHT, _DOWN | _LEFT, _UP | _RIGHT, _UP | _LEFT)
_LIGHT = dict(zip(_SHAPES, "│─╭╮╰╯", strict=True))
_HEAVY = dict(zip(_SHAPES, "┃━┏┓┗┛", strict=True))
_PLAIN_LIGHT = dict(zip(_SHAPES, ":.....", strict=True))
_PLAIN_HEAVY = dict(zip(_SHAPES, "|-++++", strict=True))

_Cell = tuple[str, Style]
_EMPTY: _Cell = (" ", "text")


@dataclass(frozen=True)
class Track:
    """A line from column `top` above to column `bottom` below. `head`: `up` or `down` has an
    arrow's head at that end, None neither."""

    top: int
    bottom: int
    heavy: bool = False
    head: str | None = None


def track_lines(tracks: Sequence[Track], width: int, *, plain: bool = False) -> list[Line]:
    """The rows between two rows of names; heavy lines are drawn over light ones, and are what the
    picture is about."""
    bent = [track for track in tracks if track.top != track.bottom]
    rows = {id(track): row + 1 for row, track in enumerate(_in_order(bent))}
    height = len(bent) + 2
    cells = [[_EMPTY] * width for _ in range(height)]
    for track in sorted(tracks, key=lambda one: one.heavy):
        row = rows.get(id(track), height)
        shapes = (
            (_PLAIN_HEAVY if track.heavy else _PLAIN_LIGHT)
            if plain
            else (_HEAVY if track.heavy else _LIGHT)
        )
        style: Style = "fault" if track.heavy else "text"
        _draw(cells, track, row, {shape: (glyph, style) for shape, glyph in shapes.items()})
        if track.head == "down":
            cells[-1][track.bottom] = ("v" if plain else "▼", style)
        elif track.head == "up":
            cells[0][track.top] = ("^" if plain else "▲", style)
    return [_row(row) for row in cells]


def _row(cells: Sequence[_Cell]) -> Line:
    text = "".join(glyph for glyph, _ in cells).rstrip()
    return line_of(text, [style for _, style in cells[: len(text)]])


def _in_order(tracks: Sequence[Track]) -> list[Track]:
    """Those to the right first where they go right: fewer lines cross."""
    return sorted(tracks, key=lambda one: -one.top if one.bottom > one.top else one.top)


def _draw(cells: list[list[_Cell]], track: Track, row: int, shapes: dict[int, _Cell]) -> None:
    for y in range(len(cells)):
        x = track.top if y < row else track.bottom
        if y != row:
            cells[y][x] = shapes[_UP | _DOWN]
    if row < len(cells):
        left, right = sorted((track.top, track.bottom))
        for x in range(left + 1, right):
            cells[row][x] = shapes[_LEFT | _RIGHT]
        goes_right = track.bottom > track.top
        cells[row][track.top] = shapes[_UP | (_RIGHT if goes_right else _LEFT)]
        cells[row][track.bottom] = shapes[_DOWN | (_LEFT if goes_right else _RIGHT)]
