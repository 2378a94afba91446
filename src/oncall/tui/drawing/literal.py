"""The one way from text to the screen: taken literally.

A host may be called `[/]`, `[@click=app.quit]x[/]` or hold an escape sequence. Whatever a widget
shows goes through `literal`, `literal_segment` or a widget below; a test looks for what does not.
`HarmlessFilter` is the last line: nothing harmful is drawn by any widget, textual's own included.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.console import Group
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text
from textual.color import Color
from textual.content import Content
from textual.filter import LineFilter
from textual.widgets import DataTable, Static

from oncall.core.printable import LONGEST_LINE, harmless, is_harmless, shortened, to_ascii

Shown = str | Text | Group | Table


def literal(text: str | Text) -> Text:
    """`text` without markup, controls or lines without end; a Text keeps its styles."""
    plain = harmless(text if isinstance(text, str) else text.plain)
    if isinstance(text, str):
        return Text(_bounded(plain))
    if plain != text.plain:
        text = text.copy()
        text.plain = plain
    return text


def literal_content(text: str) -> Content:
    """The same in textual's own type, for where no Text is taken."""
    return Content(_bounded(harmless(text)))


def literal_segment(text: str, style: Style | None = None) -> Segment:
    """A piece of a line that a widget draws itself."""
    return Segment(harmless(text).replace("\n", " "), style)


def _bounded(text: str) -> str:
    """With each line of a length that can be folded at once."""
    if len(text) <= LONGEST_LINE:
        return text
    return "\n".join(shortened(line, LONGEST_LINE) for line in text.split("\n"))


class LiteralText(Static):
    """Text as it is. Of a Group or a Table, whoever makes it makes its parts `literal`."""

    def __init__(
        self,
        content: Shown = "",
        *,
        id: str | None = None,  # noqa: A002
        classes: str | None = None,
    ) -> None:
        super().__init__(_shown(content), id=id, classes=classes, markup=False)

    def update(self, content: Any = "", *, layout: bool = True) -> None:
        super().update(_shown(content), layout=layout)


class LiteralTable(DataTable[Text]):
    """A table whose titles and cells are taken as they are."""

    def fill(self, titles: Sequence[str | Text], rows: Mapping[str, Sequence[str | Text]]) -> None:
        """Show these rows by their keys, instead of any before. Widths are given at once: DataTable
        measures only when idle, and a line that is drawn before that stays cut off."""
        self.clear(columns=True)
        for column in zip(titles, *rows.values(), strict=True):
            self.add_column(column[0], width=max(literal(cell).cell_len for cell in column))
        for key, cells in rows.items():
            self.add_row(*cells, key=key)

    def add_column(self, label: Any, *arguments: Any, **settings: Any) -> Any:
        return super().add_column(literal(label), *arguments, **settings)

    def add_row(self, *cells: Any, **settings: Any) -> Any:
        return super().add_row(*map(literal, cells), **settings)

    def update_cell(self, row_key: Any, column_key: Any, value: Any, **settings: Any) -> None:
        super().update_cell(row_key, column_key, literal(value), **settings)


def _shown(content: Shown) -> Text | Group | Table:
    return content if isinstance(content, Group | Table) else literal(content)


class HarmlessFilter(LineFilter):
    """Applied to all that is drawn; a line stays as wide as it was measured."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:  # noqa: ARG002
        return [
            segment
            if segment.control or is_harmless(segment.text)
            else Segment(_as_wide(segment.text), segment.style)
            for segment in segments
        ]


def _as_wide(text: str) -> str:
    """With what is harmful replaced where it takes a column, and left out where it takes none."""
    kept = "".join(
        one if one == shown else shown * max(cell_len(one), 0)
        for one, shown in zip(text, harmless(text), strict=True)
    )
    return set_cell_size(kept, cell_len(text))  # of what was joined, the parts are wider


class AsciiFilter(LineFilter):
    """Applied to all that is drawn, borders and scroll bars included."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:  # noqa: ARG002
        return [
            Segment(set_cell_size(to_ascii(text), cell_len(text)), style, control)
            for text, style, control in segments
        ]
