"""Rows of evidence in a table that keeps the reader's row when they come anew."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType

from oncall.render.text.lines import cell_len, padded
from oncall.tui.drawing.literal import LiteralTable
from oncall.tui.models.rows import Column, Sheet


class SheetTable(LiteralTable):
    """A `Sheet`; at most some hundred rows. `h` and `l` move sideways, as in a list."""

    DEFAULT_CSS = """
    SheetTable { height: auto; max-height: 100%; background: $background; scrollbar-size: 1 1; }
    SheetTable:focus { background-tint: transparent; }
    SheetTable > .datatable--header { background: $background; color: $muted; text-style: none; }
    SheetTable > .datatable--cursor {
        background: $background; color: $foreground; text-style: none;
    }
    SheetTable:focus > .datatable--cursor { background: $band; text-style: bold; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "cursor_down", "Down", show=False),
        Binding("k", "cursor_up", "Up", show=False),
        Binding("l", "scroll_right", "Right", show=False),
        Binding("h", "scroll_left", "Left", show=False),
        Binding("g", "scroll_top", "First", show=False),
        Binding("G", "scroll_bottom", "Last", show=False),
    ]

    def __init__(self, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id, cursor_type="row", cell_padding=1)
        self._sheet: Sheet | None = None

    def show(self, sheet: Sheet) -> None:
        """Show these rows; the cursor stays at its row, the view where it was."""
        if sheet == self._sheet:
            return
        same = self._sheet is not None and self._sheet.columns == sheet.columns
        row, offset = (self.cursor_row, self.scroll_offset) if same else (0, (0, 0))
        self._sheet = sheet
        self.clear(columns=True)
        widths = [
            max(cell_len(cell) for cell in (column.title, *(row[index] for row in sheet.rows)))
            for index, column in enumerate(sheet.columns)
        ]
        for column, width in zip(sheet.columns, widths, strict=True):
            self.add_column(_cell(column, column.title, width))
        for cells in sheet.rows:
            self.add_row(*map(_cell, sheet.columns, cells, widths))
        if sheet.rows:
            self.move_cursor(row=min(row, len(sheet.rows) - 1), animate=False)
            self.scroll_to(*offset, animate=False)

    def row_text(self) -> str:
        """The row under the cursor, with tabs."""
        if self._sheet is None or not self._sheet.rows:
            return ""
        return "\t".join(self._sheet.rows[self.cursor_row])


def _cell(column: Column, text: str, width: int) -> Text:
    return Text(padded(text, width, right=True) if column.number else text, no_wrap=True)
