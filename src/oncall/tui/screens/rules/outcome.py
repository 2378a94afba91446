"""The result of checking, trying or testing a rulebook: lines, or rows, under a title."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Vertical

from oncall.tui.drawing.literal import LiteralText
from oncall.tui.models.reading import Item
from oncall.tui.models.rows import Sheet
from oncall.tui.widgets.reading_list import ReadingList
from oncall.tui.widgets.roles import role_styles
from oncall.tui.widgets.sheet_table import SheetTable


class Outcome(Vertical):
    """The last result; the next one takes its place."""

    def compose(self) -> ComposeResult:
        yield LiteralText(id="outcome-title")
        yield ReadingList(id="outcome-lines")
        yield SheetTable(id="outcome-rows")

    def show_lines(self, title: str, items: Sequence[Item]) -> None:
        self._entitle(title)
        self.query_one(SheetTable).display = False
        lines = self.query_one(ReadingList)
        lines.display = True
        lines.show(items)

    def show_rows(self, title: str, sheet: Sheet) -> None:
        shared = f"every row: {sheet.shared}" if sheet.shared else ""
        self._entitle(f"{title} · {sheet.counted}", shared)
        self.query_one(ReadingList).display = False
        table = self.query_one(SheetTable)
        table.display = bool(sheet.rows)
        table.show(sheet)

    def _entitle(self, title: str, more: str = "") -> None:
        styles = role_styles(self)
        text = Text(title, styles["heading"])
        if more:
            text.append(f"\n{more}", styles["faint"])
        self.query_one("#outcome-title", LiteralText).update(text)
