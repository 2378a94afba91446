"""Every rank of the job as a cell: a letter and a colour by state, and a cursor around one of them.

Where two rows share a line, two unlike cells are a half block of both colours; a rank at fault
keeps its letter. Only the lines on screen are drawn, and of a new snapshot only the cells whose
state changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from oncall.render.text.lines import cell_len
from oncall.tui.drawing.literal import literal_segment
from oncall.tui.drawing.states import STATES, state_styles, theme_style
from oncall.tui.models.rates import Floats
from oncall.tui.screens.fleet.layout import (
    Layout,
    begins_at,
    heading_text,
    lay_out,
    moved,
    next_at,
)
from oncall.tui.screens.fleet.model import LEVELS, Mask, faults, levels
from oncall.tui.screens.fleet.rank_cells import LETTERS, cell_texts, value_widths
from oncall.tui.widgets.line_list import cursor_bindings
from oncall.views.ranks.ranks import RankValues
from oncall.views.snapshot import Ranks, RankState

if TYPE_CHECKING:
    from oncall.views.snapshot import Ints


class RankGrid(ScrollView, can_focus=True):
    """The fleet. Its cursor stays on a rank whatever is regrouped, left out or updated."""

    BINDINGS = cursor_bindings(sideways=True)
    HELP = """\
Each cell is a rank; its letter and colour show its state. The cursor starts on the first rank at \
fault; w and b jump between these, f hides all others, v groups by node, rack, stage or parallel \
group. / filters by 0-7, gpu01, late, tp3, stage:1; several words narrow further."""
    DEFAULT_CSS = "RankGrid { height: 1fr; width: 1fr; scrollbar-size-vertical: 1; }"

    class Moved(Message):
        """The cursor came to a rank (its number)."""

        def __init__(self, rank: int) -> None:
            super().__init__()
            self.rank = rank

        def can_replace(self, message: Message) -> bool:
            return isinstance(message, RankGrid.Moved)

    def __init__(self, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._ranks: Ranks | None = None
        self._by = "node"
        self._shown: Mask = np.zeros(0, dtype=np.bool_)
        self._layout_now: Layout | None = None
        self._fits: Size = Size()
        self._cursor: int | None = None  # index
        self._values: RankValues | None = None
        self._sorted = False
        # What each cell shows: its state, or behind these the level of its value, -1 for none.
        self._looks: Ints = np.zeros(0, dtype=np.int64)
        self._styles: tuple[Style, ...] = ()
        self._pairs: dict[tuple[int, int], Style] = {}  # looks of two cells in one
        self._label = self._heading = self._ring = Style()
        self._named = False

    # ------------------------------------------------------------------- shown

    def show(
        self,
        ranks: Ranks,
        shown: Mask,
        by: str,
        values: RankValues | None = None,
        by_value: bool = False,
        named: bool = False,
    ) -> None:
        """Show these ranks; only cells that changed are drawn again. With `values`, their level
        replaces the state; `by_value`: sorted, the greatest first; `named`: with their numbers,
        even where that needs scrolling."""
        before, looks = self._ranks, self._looks
        alike = (values, by_value, named) == (self._values, self._sorted, self._named)
        self._values, self._sorted, self._named = values, by_value, named
        self._looks = ranks.state
        if values is not None:
            level = levels(values.value)
            self._looks = len(STATES) + np.where(level < 0, LEVELS, level)
        same = (
            before is not None
            and alike
            and by == self._by
            and np.array_equal(shown, self._shown)
            and _same_places(before, ranks)
        )
        rank = self.rank
        self._ranks, self._shown, self._by = ranks, shown, by
        if same and before is not None:
            self._repaint(np.flatnonzero(looks != self._looks))
            return
        self._cursor = None if rank is None else ranks.place(rank)
        self._lay_out()

    @property
    def rank(self) -> int | None:
        """The rank that the cursor is on."""
        if self._ranks is None or self._cursor is None:
            return None
        return int(self._ranks.rank[self._cursor])

    @property
    def shown(self) -> tuple[list[int], set[str]]:
        """The ranks that have a cell, and their hosts as far as these are known."""
        assert self._ranks is not None
        nodes = {self._ranks.node[at] for at in np.flatnonzero(self._shown)}
        return self._ranks.rank[self._shown].tolist(), nodes - {""}

    def go_to(self, rank: int) -> bool:
        """Put the cursor on a rank; False if it is not shown."""
        if self._ranks is None or self._layout_now is None:
            return False
        place = self._ranks.place(rank)
        if place not in self._layout_now.place:
            return False
        self._move(place)
        return True

    def next_fault(self, step: int) -> bool:
        """Put the cursor on the next rank at fault; False if there is none."""
        if self._ranks is None or self._layout_now is None:
            return False
        index = next_at(self._layout_now, self._cursor, faults(self._ranks.state), step)
        self._move(index)
        return index is not None

    def _lay_out(self) -> None:
        if self._ranks is None or not self.size.width:
            return
        self._fits = self.scrollable_content_region.size
        width, height = self._fits
        key: Floats | None = None
        cells: tuple[int, ...] = ()
        if self._values is not None:
            key = np.nan_to_num(-self._values.value, nan=np.inf) if self._sorted else None
            cells = value_widths(self._ranks, self._looks, self._values)
        shown = self._shown
        self._layout_now = lay_out(
            self._ranks, self._by, shown, width, height, key, cells, self._named
        )
        self.virtual_size = Size(self._layout_now.width, self._layout_now.height)
        if self._cursor not in self._layout_now.place:
            self._cursor = begins_at(self._layout_now, self._ranks.state)
            self._say()
        self._scroll_to_cursor(center=True)
        self.refresh()

    def _repaint(self, changed: Ints) -> None:
        """Draw again the cells of these indices, and the headings that count them."""
        layout = self._layout_now
        if layout is None or not len(changed):
            return
        wanted = np.zeros(len(self._shown), dtype=np.bool_)
        wanted[changed] = True
        left, top = self.scroll_offset
        bottom = top + self.size.height
        sight = slice(*np.searchsorted(layout.row, (top * layout.stack, bottom * layout.stack)))
        places = np.flatnonzero(wanted[layout.order[sight]]) + int(sight.start)
        regions = [
            Region(column - left, line - top, width, 1)
            for line, column, width in _extents(layout, places)
        ]
        for heading in layout.headings_above(layout.row[wanted[layout.order]]):
            line = heading // layout.stack
            if top <= line < bottom:
                regions.append(Region(0, line - top, self.size.width, 1))
        if regions:
            self.refresh(*regions)

    # ----------------------------------------------------------------- drawing

    def on_mount(self) -> None:
        self.app.theme_changed_signal.subscribe(self, lambda _: self._dress())
        self._dress()

    def _dress(self) -> None:
        cold, warm, hot = (
            theme_style(self.app, name) for name in ("primary", "warning", "state-blamed")
        )
        ramp = [cold] * 5 + [warm] * 3 + [hot + Style(bold=True)] * 2
        self._styles = (
            *(
                style + Style(reverse=True) if state == RankState.BLAMED else style
                for state, style in enumerate(state_styles(self.app))
            ),
            *ramp,
            theme_style(self.app, "muted"),
        )
        self._pairs = {}
        self._label = theme_style(self.app, "muted")
        self._heading = theme_style(self.app, "primary", bold=True)
        self._ring = theme_style(self.app, "accent", bold=True)
        self.refresh()

    def on_resize(self, event: events.Resize) -> None:  # noqa: ARG002
        if self.scrollable_content_region.size != self._fits:
            self._lay_out()

    def render_line(self, y: int) -> Strip:
        left, top = self.scroll_offset
        base = self.rich_style
        segments: list[Segment] = []
        end = 0
        for column, text, style in self._pieces(y + top):
            if column > end:
                segments.append(literal_segment(" " * (column - end), base))
            segments.append(literal_segment(text, base + style))
            end = column + cell_len(text)
        strip = self._ringed(Strip(segments, end), y + top)
        return strip.crop_extend(left, left + self.size.width, base)

    def _ringed(self, strip: Strip, line: int) -> Strip:
        """The line with brackets around the cell of the cursor, whose own look they leave."""
        layout = self._layout_now
        if layout is None or self._cursor is None:
            return strip
        place = layout.place[self._cursor]
        if int(layout.row[place]) // layout.stack != line:
            return strip
        style = self.rich_style + self._ring
        first = int(layout.column[place])
        last = first + max(layout.cell - 1, 1)
        strip = strip.adjust_cell_length(max(strip.cell_length, last + 1), self.rich_style)
        return Strip.join([
            strip.crop(0, first - 1), Strip([literal_segment("[", style)]),
            strip.crop(first, last), Strip([literal_segment("]", style)]), strip.crop(last + 1),
        ])  # fmt: skip

    def _pieces(self, line: int) -> Iterator[tuple[int, str, Style]]:
        """(column, text, style) of a line from left to right; cells alike are one piece."""
        layout, ranks = self._layout_now, self._ranks
        if layout is None or ranks is None or not 0 <= line < layout.height:
            return
        row = line * layout.stack
        labels = list(layout.labels.get(row, ()))
        columns, texts, styles = self._cells(row) if layout.stack == 1 else self._halves(row)
        place = 0
        while labels or place < len(columns):
            if labels and (place == len(columns) or labels[0].column < columns[place]):
                label = labels.pop(0)
                style = self._label if label.members is None else self._heading
                yield label.column, heading_text(label, ranks.state), style
                continue
            column, text, style = columns[place], texts[place], styles[place]
            place += 1
            while (
                place < len(columns)
                and styles[place] is style
                and columns[place] == column + len(text)
            ):
                text += texts[place]
                place += 1
            yield column, text, style

    def _cells(self, row: int) -> tuple[list[int], list[str], list[Style]]:
        """Column, text and style of each cell of a row."""
        layout = self._layout_now
        assert layout is not None
        cells = slice(int(layout.starts[row]), int(layout.starts[row + 1]))
        order = layout.order[cells]
        styles = [self._styles[look] for look in self._looks[order].tolist()]
        assert self._ranks is not None
        texts = cell_texts(self._ranks, order, self._looks, self._values, layout.cell)
        return layout.column[cells].tolist(), texts, styles

    def _halves(self, row: int) -> tuple[list[int], list[str], list[Style]]:
        """The same of two rows in one line. The letter of the cell under the cursor or at fault, or
        that of both; else the upper one's colour above the lower one's."""
        layout, ranks = self._layout_now, self._ranks
        assert layout is not None and ranks is not None
        pairs: dict[int, list[int]] = {}  # by column
        last = min(row + 2, layout.rows)
        cells = slice(int(layout.starts[row]), int(layout.starts[last]))
        both = zip(layout.column[cells].tolist(), layout.order[cells].tolist(), strict=True)
        for column, index in both:
            pairs.setdefault(column, []).append(index)
        at_fault = faults(ranks.state)
        columns, texts, styles = sorted(pairs), [], []
        for column in columns:
            pair = pairs[column]
            upper, lower = (int(self._looks[index]) for index in (pair[0], pair[-1]))
            shown = next((index for index in pair if index == self._cursor), None)
            if shown is None:
                shown = next((index for index in pair if at_fault[index]), None)
            if shown is not None or upper == lower:
                look = upper if shown is None else int(self._looks[shown])
                texts.append(str(LETTERS[look]))
                styles.append(self._styles[look])
            else:
                texts.append("▀")
                styles.append(self._mixed(upper, lower))
        return columns, texts, styles

    def _mixed(self, upper: int, lower: int) -> Style:
        """The upper one's colour above the lower one's; one object for each pair."""
        colours = Style(color=self._styles[upper].color, bgcolor=self._styles[lower].color)
        return self._pairs.setdefault((upper, lower), colours)

    # ------------------------------------------------------------------ cursor

    def _move(self, index: int | None) -> None:
        if index is None or index == self._cursor:
            return
        before, self._cursor = self._cursor, index
        self._repaint(np.array([one for one in (before, index) if one is not None]))
        self._scroll_to_cursor()
        self._say()

    def _say(self) -> None:
        if self.rank is not None:
            self.post_message(self.Moved(self.rank))

    def _scroll_to_cursor(self, *, center: bool = False) -> None:
        layout = self._layout_now
        if layout is None or self._cursor is None:
            return
        place = layout.place[self._cursor]
        row = int(layout.row[place])
        above = layout.headings_above(np.array([row]))
        line, top = (one // layout.stack for one in (row, above[0] if above else row))
        top = top if line - top <= 1 else line
        region = Region(int(layout.column[place]), top, layout.cell, line - top + 1)
        self.scroll_to_region(region, animate=False, force=True, center=center)

    def _step(self, columns: int = 0, rows: int = 0) -> None:
        if self._layout_now is not None:
            self._move(moved(self._layout_now, self._cursor, columns, rows))

    def action_aside(self, by: int) -> None:
        self._step(columns=by)

    def action_move(self, by: int) -> None:
        self._step(rows=by)

    def action_page(self, way: int) -> None:
        self._step(rows=way * max(1, self.size.height - 1))

    def action_edge(self, way: int) -> None:
        self._step(columns=way * len(self._shown))

    def on_click(self, event: events.Click) -> None:
        if self._layout_now is not None:
            left, top = self.scroll_offset
            row = (event.y + top) * self._layout_now.stack
            upper = self._layout_now.at(event.x + left, row)
            self._move(
                upper if upper != self._cursor else self._layout_now.at(event.x + left, row + 1)
            )


def _extents(layout: Layout, places: Ints) -> list[tuple[int, int, int]]:
    """(line, column, width) of what to draw again, with room for the cursor's brackets: one stretch
    a line, as textual draws each from the widget's left edge on."""
    stretches: dict[int, tuple[int, int]] = {}
    lines = (layout.row[places] // layout.stack).tolist()
    for line, column in zip(lines, layout.column[places].tolist(), strict=True):
        first, end = stretches.get(line, (column, column))
        stretches[line] = min(first, column), max(end, column)
    return [
        (line, first - 1, end - first + layout.cell + 2) for line, (first, end) in stretches.items()
    ]


def _same_places(before: Ranks, now: Ranks) -> bool:
    """Whether every rank is still on the same node and GPU, in whatever state."""
    return (
        np.array_equal(before.rank, now.rank)
        and np.array_equal(before.gpu, now.gpu)
        and (before.node is now.node or before.node == now.node)
        and before.groups.keys() == now.groups.keys()
        and all(np.array_equal(before.groups[role], now.groups[role]) for role in now.groups)
    )
