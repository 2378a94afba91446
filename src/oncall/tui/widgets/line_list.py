"""A list of one-line rows with a cursor, of which only those on screen are drawn."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Generic, TypeVar

from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from oncall.tui.drawing.abstract import AbstractMeta
from oncall.tui.drawing.literal import literal_segment
from oncall.tui.drawing.states import theme_style

Row = TypeVar("Row")

_CURSOR, _CURSOR_AWAY = "❯", "›"  # with the keyboard, and without


_KEYS = (
    ("up", "up,k", "Up", "move(-1)"),
    ("down", "down,j", "Down", "move(1)"),
    ("page_up", "pageup,ctrl+u", "Page up", "page(-1)"),
    ("page_down", "pagedown,ctrl+d", "Page down", "page(1)"),
    ("first", "home,g", "First", "edge(-1)"),
    ("last", "end,G", "Last", "edge(1)"),
)
_SIDEWAYS = (("left", "left,h", "Left", "aside(-1)"), ("right", "right,l", "Right", "aside(1)"))


def cursor_bindings(sideways: bool = False) -> list[BindingType]:
    """The keys that move a cursor, the same in every pane, with ids `cursor.<name>` for a
    configuration to remap."""
    return [
        Binding(key, action, title, id=f"cursor.{name}", show=False)
        for name, key, title, action in (_KEYS + _SIDEWAYS if sideways else _KEYS)
    ]


class LineList(ScrollView, Generic[Row], can_focus=True, metaclass=AbstractMeta):
    """Rows of one line. The cursor stays on its row's key, wherever the row goes.

    A subclass says what a row's key is, how it is drawn, and when it has not changed.
    """

    BINDINGS = cursor_bindings()
    DEFAULT_CSS = "LineList { height: 1fr; scrollbar-size-vertical: 1; }"

    class Moved(Message):
        """The cursor came to another row."""

        def __init__(self, control: LineList[Any]) -> None:
            super().__init__()
            self._list = control

        @property
        def control(self) -> LineList[Any]:
            return self._list

        def can_replace(self, message: Message) -> bool:
            return isinstance(message, LineList.Moved) and message.control is self.control

    class Pointed(Message):
        """The cursor came to another place within its row."""

        def can_replace(self, message: Message) -> bool:
            return isinstance(message, LineList.Pointed)

    def __init__(self, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self.rows: Sequence[Row] = ()
        self._at = 0

    # ------------------------------------------------- what a subclass overrides

    @abstractmethod
    def key(self, row: Row) -> Hashable:
        """What makes a row the same one in a new list."""

    @abstractmethod
    def draw(self, row: Row, width: int) -> Iterable[tuple[str, Style]]:
        """The row's text, in pieces, at most `width` columns."""

    def unchanged(self, before: Row, now: Row) -> bool:
        """Whether a row need not be drawn again."""
        return before == now

    # ------------------------------------------------------------------- shown

    def show(self, rows: Sequence[Row]) -> None:
        """Show these; lines that say the same are not drawn again."""
        before, held = self.rows, self.row
        self.rows = rows
        key = None if held is None else self.key(held)
        found = (place for place, row in enumerate(rows) if self.key(row) == key)
        at = next(found, min(self._at, max(len(rows) - 1, 0)))
        moved = at != self._at or self.row is None or self.key(rows[at]) != key
        self._at = at
        if len(rows) != len(before):
            self.virtual_size = Size(0, len(rows))
            self.refresh()
        else:
            changed = (
                n
                for n, (a, b) in enumerate(zip(before, rows, strict=True))
                if not self.unchanged(a, b)
            )
            self._repaint(changed)
        if moved:
            self.refresh()
            self._scroll_to_cursor()
        if moved and rows:
            self.post_message(self.Moved(self))

    @property
    def row(self) -> Row | None:
        """The row that the cursor is on."""
        return self.rows[self._at] if self._at < len(self.rows) else None

    def go_to(self, key: Hashable) -> bool:
        """Put the cursor on a row; False if it is not in the list."""
        for place, row in enumerate(self.rows):
            if self.key(row) == key:
                self._move(place)
                return True
        return False

    def _repaint(self, places: Iterable[int]) -> None:
        top, bottom = self.scroll_offset.y, self.scroll_offset.y + self.size.height
        width = self.size.width
        regions = [Region(0, place - top, width, 1) for place in places if top <= place < bottom]
        if regions:
            self.refresh(*regions)

    def render_line(self, y: int) -> Strip:
        width, base = self.size.width, self.rich_style
        place = y + self.scroll_offset.y
        if place >= len(self.rows):
            return Strip.blank(width, base)
        mark = " "
        if place == self._at:
            base += self._here
            mark = _CURSOR if self.has_focus else _CURSOR_AWAY
        pieces = self.draw(self.rows[place], width - 1)
        segments = [literal_segment(text, base + style) for text, style in pieces]
        return Strip([literal_segment(mark, base), *segments]).adjust_cell_length(width, base)

    def on_mount(self) -> None:
        self.app.theme_changed_signal.subscribe(self, lambda _: self.dress())
        self.dress()

    def dress(self) -> None:
        """Take the styles of the theme in force."""
        self._here = Style(bold=True, bgcolor=theme_style(self.app, "band").color)
        self.refresh()

    def on_focus(self) -> None:
        self._repaint([self._at])

    def on_blur(self) -> None:
        self._repaint([self._at])

    def on_resize(self, event: events.Resize) -> None:  # noqa: ARG002
        self.refresh()
        self._scroll_to_cursor()

    # ------------------------------------------------------------------ cursor

    def _move(self, place: int) -> None:
        place = max(0, min(place, len(self.rows) - 1))
        if place == self._at or not self.rows:
            return
        before, self._at = self._at, place
        self._repaint((before, place))
        self._scroll_to_cursor()
        self.post_message(self.Moved(self))

    def _scroll_to_cursor(self) -> None:
        self.scroll_to_region(Region(0, self._at, 1, 1), animate=False, force=True)

    def action_move(self, by: int) -> None:
        self._move(self._at + by)

    def action_page(self, way: int) -> None:
        self._move(self._at + way * max(1, self.size.height - 1))

    def action_edge(self, way: int) -> None:
        self._move(self._at + way * len(self.rows))

    def on_click(self, event: events.Click) -> None:
        self._move(event.y + self.scroll_offset.y)
