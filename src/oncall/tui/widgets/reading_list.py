"""Lines to read with a cursor: findings, a story, rules, problems; and the roles of what stands in
a line of a rulebook.

What is shown changes under the reader, so the cursor holds on to an item's name, and the line it
stands on stays where it is on the screen. Only the lines in sight are drawn.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from rich.console import Console
from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from oncall.tui.drawing.literal import literal, literal_segment
from oncall.tui.drawing.states import role_styles
from oncall.views.words import frame_phrase

_GUTTER = 2
_LEAST_ROOM = 16  # for what is said, beside an aside
_HERE, _HERE_AWAY = "▌ ", "▏ "


class ReadingList(ScrollView, can_focus=True):
    """Items one below the other, folded at the width there is."""

    DEFAULT_CSS = """
    ReadingList {
        height: 1fr; background: $background; color: $foreground;
        overflow-x: hidden; scrollbar-size: 0 1; scrollbar-gutter: stable;
    }
    ReadingList > .reading--here { background: $band; }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {"reading--here"}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,j", "move(1)", "Down", show=False, id="list.down"),
        Binding("up,k", "move(-1)", "Up", show=False, id="list.up"),
        Binding("home,g", "edge(-1)", "First", show=False, id="list.first"),
        Binding("end,G,upper_g", "edge(1)", "Last", show=False, id="list.last"),
        Binding("pagedown,ctrl+f", "page(1)", "Page down", show=False, id="list.page_down"),
        Binding("pageup", "page(-1)", "Page up", show=False, id="list.page_up"),
        Binding("enter,l,right", "choose", "Open", show=False, id="list.open"),
    ]

    class Moved(Message):
        """The cursor is on another item, or on what has become of it. `by_reader`: they did it."""

        def __init__(self, reading: ReadingList, item: Item | None, by_reader: bool) -> None:
            super().__init__()
            self.reading = reading
            self.item = item
            self.by_reader = by_reader

        @property
        def control(self) -> ReadingList:
            return self.reading

    class Chosen(Moved):
        """Enter, or a click on the item that the cursor is on."""

    def __init__(self, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self.items: tuple[Item, ...] = ()
        self._lines: list[tuple[int, Text]] = []  # of which item, what
        self._tops: list[int] = []  # the first line of each item
        self._folded: tuple[Item, ...] | None = None  # the items that the lines are of
        self._folded_at = 0  # the width they are folded at
        self._cursor = 0

    # ------------------------------------------------------------ what is shown

    @property
    def item(self) -> Item | None:
        """The one the cursor is on."""
        here = self.items[self._cursor] if self._cursor < len(self.items) else None
        return here if here is not None and here.reads else None

    def show(self, items: Sequence[Item], at: str | None = None) -> None:
        """Show these. The cursor goes to the item named `at`; else it stays on the item it is on,
        or where that was. Nothing is drawn anew if nothing differs."""
        before = self.item
        items = tuple(items)
        if items == self.items:
            if at is not None and (before is None or before.name != at):
                self.go_to(at)
            return
        above = self._top(self._cursor) - round(self.scroll_y)
        names = [item.name for item in items]
        wanted = at or (before.name if before is not None else None)
        self.items = items
        self._cursor = names.index(wanted) if wanted in names else self._nearest(self._cursor)
        if self._room > 0:
            self._fold(self._room)
            same = before is not None and self.item is not None and before.name == self.item.name
            if same:
                top = self._top(self._cursor)
                self.scroll_to(y=max(0, top - above), animate=False, immediate=True)
            else:
                self._reveal()
        self.refresh(layout=True)
        self._layout_updates += 1  # else textual keeps the height if a layout was due already
        if self.item != before:
            self.post_message(self.Moved(self, self.item, by_reader=False))

    def go_to(self, name: str) -> bool:
        """Put the cursor on the item of that name; whether there is one."""
        for index, item in enumerate(self.items):
            if item.name == name and item.reads:
                self._set(index)
                return True
        return False

    def _nearest(self, index: int) -> int:
        """The readable item at `index` or after it, else before it."""
        after = range(min(index, len(self.items)), len(self.items))
        before = range(min(index, len(self.items) - 1), -1, -1)
        return next((i for i in (*after, *before) if self.items[i].reads), 0)

    # ----------------------------------------------------------------- the keys

    def action_move(self, by: int) -> None:
        index = self._cursor + by
        while 0 <= index < len(self.items) and not self.items[index].reads:
            index += by
        if 0 <= index < len(self.items):
            self._set(index)
        else:  # nothing more to stop at, but perhaps to read
            self.scroll_relative(y=by, animate=False)

    def action_edge(self, direction: int) -> None:
        if direction < 0:
            self._set(self._nearest(0))
            self.scroll_home(animate=False)
        else:
            readable = [i for i, item in enumerate(self.items) if item.reads]
            self._set(readable[-1] if readable else 0)
            self.scroll_end(animate=False)

    def action_page(self, direction: int) -> None:
        """A page on, by items: the next readable one about a page away."""
        line = self._top(self._cursor) + direction * max(self.size.height - 1, 1)
        line = max(0, min(line, len(self._lines) - 1))
        if self._lines:
            self._set(self._nearest(self._lines[line][0]))

    def action_choose(self) -> None:
        if self.item is not None:
            self.post_message(self.Chosen(self, self.item, by_reader=True))

    def on_click(self, event: events.Click) -> None:
        line = event.y + round(self.scroll_y)
        if not 0 <= line < len(self._lines):
            return
        index = self._lines[line][0]
        if index == self._cursor:
            self.action_choose()
        elif self.items[index].reads:
            self._set(index)

    def _set(self, index: int) -> None:
        changed = index != self._cursor
        self._cursor = index
        self._reveal()
        if changed:
            self.refresh()
            self.post_message(self.Moved(self, self.item, by_reader=True))

    def _reveal(self) -> None:
        """Scroll as little as shows the item, and a heading right above it."""
        if not self._tops or not self.size.height:
            return
        top, height = self._top(self._cursor), self._height(self._cursor)
        above = self._cursor - 1
        if above >= 0 and not self.items[above].reads and self._height(above) == 2:
            top, height = top - 1, height + 1
        if self._nearest(0) == self._cursor:  # what stands above the first belongs to it
            top, height = 0, self._top(self._cursor) + self._height(self._cursor)
        self.scroll_to_region(
            Region(0, top, self.size.width, min(height, self.size.height)),
            animate=False,
            immediate=True,
        )

    # ------------------------------------------------------------------ drawing

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:  # noqa: ARG002
        self._fold(width - self.scrollbar_size_vertical)
        return len(self._lines)

    def on_resize(self) -> None:
        self._fold(self._room)
        self._reveal()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._folded = None
        if self._room > 0:
            self._fold(self._room)

    def on_show(self) -> None:
        """What came while it was hidden."""
        self._fold(self._room)
        self._reveal()
        self.refresh()

    def on_focus(self) -> None:
        self.refresh()

    def on_blur(self) -> None:
        self.refresh()

    def render_line(self, y: int) -> Strip:
        base = self.rich_style
        line = y + round(self.scroll_y)
        if not 0 <= line < len(self._lines):
            return Strip.blank(self.size.width, base)
        index, text = self._lines[line]
        gutter, style = " " * _GUTTER, base
        if index == self._cursor and self.items[index].reads:
            gutter = _HERE if self.has_focus else _HERE_AWAY
            style = base + self.get_component_rich_style("reading--here", partial=True)
        marks = literal_segment(gutter, role_styles(self)["key"])
        strip = Strip([marks, *text.render(self.app.console)])
        return strip.adjust_cell_length(self.size.width, style).apply_style(style)

    @property
    def _room(self) -> int:
        return self.scrollable_content_region.width

    def _top(self, index: int) -> int:
        return self._tops[index] if index < len(self._tops) else 0

    def _height(self, index: int) -> int:
        end = self._tops[index + 1] if index + 1 < len(self._tops) else len(self._lines)
        return end - self._top(index)

    def _fold(self, width: int) -> None:
        """Lay the items out; again only when they or the width have changed."""
        if self.items is self._folded and width == self._folded_at:
            return
        self._folded, self._folded_at = self.items, width
        styles = role_styles(self)
        self._lines, self._tops = [], []
        for index, item in enumerate(self.items):
            self._tops.append(len(self._lines))
            for paragraph in item.paragraphs:
                folded = fold(paragraph, width - _GUTTER - 1, styles, self.app.console)
                self._lines.extend((index, line) for line in folded)
        self.virtual_size = Size(width, len(self._lines))


def fold(
    paragraph: Paragraph, width: int, styles: Mapping[str, Style], console: Console
) -> list[Text]:
    """The lines of a paragraph: its lead, then all under the lead's end; the aside at the right."""
    said = literal(
        Text.assemble(
            *((part, styles[role]) for part, role in paragraph.parts), no_wrap=True, end=""
        )
    )
    aside = literal(Text(paragraph.aside[0], styles[paragraph.aside[1]], end=""))
    aside.truncate(max(width - len(paragraph.lead) - _LEAST_ROOM - 1, 0), overflow="ellipsis")
    room = width - len(paragraph.lead) - (aside.cell_len + 1 if aside else 0)
    room = max(room, _LEAST_ROOM)
    if paragraph.folds:
        lines = list(said.wrap(console, room, overflow="fold", no_wrap=False))
    else:
        said.truncate(room, overflow="ellipsis")
        lines = [said]
    folded: list[Text] = []
    for number, line in enumerate(lines or [Text("")]):
        line.rstrip()
        lead = paragraph.lead if not number else " " * len(paragraph.lead)
        text = Text.assemble((lead, styles["faint"]), line, end="")
        if aside and not number:
            text.pad_right(max(0, width - text.cell_len - aside.cell_len))
            text.append_text(aside)
        folded.append(text)
    return folded


Role = Literal[
    "plain", "strong", "faint", "heading", "command", "key", "value", "string", "comment",
    "critical", "warning", "info", "healthy", "unseen",
]  # fmt: skip


@dataclass(frozen=True)
class Paragraph:
    """Text that folds under its lead: `parts` are (text, role); `aside` stands at the right of
    the first line. Not `folds`: cut where the line ends."""

    lead: str
    parts: tuple[tuple[str, Role], ...]
    aside: tuple[str, Role] = ("", "faint")
    folds: bool = True


@dataclass(frozen=True)
class Item:
    """Some paragraphs. `name` is its identity when others come and go; `reads`: the cursor stops.

    step: the step of a story whose rows lie behind it
    copy: what the copy key takes; `kind` says what that is
    rank: somebody to go and see
    """

    name: str
    paragraphs: tuple[Paragraph, ...]
    reads: bool = True
    step: int | None = None
    copy: str = ""
    kind: Literal["text", "command"] = "text"
    rank: int | None = None


def line(text: str, role: Role = "plain", lead: str = "") -> Paragraph:
    """A paragraph of one part."""
    return Paragraph(lead, ((text, role),))


def heading(title: str, name: str = "") -> Item:
    """A title with air above it."""
    return text(name or f"{title.lower()} heading", line(""), line(title, "heading"))


def text(name: str, *paragraphs: Paragraph) -> Item:
    """Something that the cursor passes over."""
    return Item(name, paragraphs, reads=False)


def readable(name: str, said: str, lead: str = " · ", role: Role = "plain") -> Item:
    """A line to stop at and to copy."""
    return Item(name, (line(said, role, lead),), copy=said)


def frame_lines(frames: Sequence[str], most: int, lead: str, more: str = "") -> Iterator[Paragraph]:
    """The newest frames of a stack, those of libraries faint; what is left out is counted."""
    for frame in frames[:most]:
        said, library = frame_phrase(frame)
        yield line(said, "faint" if library else "plain", lead)
    if (others := len(frames) - most) > 0:
        yield line(f"… {others} more frames{more}", "faint", lead)


Span = tuple[int, int, Role]  # from, to, in characters

_KEY = re.compile(r"^(\s*(?:- )*)([A-Za-z_][\w.-]*)(:)(?=\s|$)")
_INLINE_KEY = re.compile(r"(?<=[{,]) *([A-Za-z_][\w.-]*)(?=:\s)")
_COMMENT = re.compile(r"(?:^|(?<=\s))#.*|--\s.*")
_TEXT = re.compile(r"\"(?:\\.|[^\"\\])*\"|'(?:''|[^'])*'")
_SLOT = re.compile(r"\{\{[^{}]*\}\}|\$[A-Za-z_]\w*")
_NUMBER = re.compile(
    r"(?<![\w.$])[0-9][0-9_,.]*(?:\s?(?:ns|us|µs|ms|s|min|h|d|%|[kMGT]?i?B(?:/s)?))?(?![\w.])"
)
_TEST = re.compile(r"\b(?:any|none)\((\w+)\)")
_SQL = re.compile(
    r"\b(?:SELECT|FROM|WHERE|JOIN|LEFT|RIGHT|INNER|OUTER|FULL|CROSS|ASOF|ON|USING|GROUP|ORDER|BY|"
    r"HAVING|QUALIFY|LIMIT|AS|AND|OR|NOT|IN|IS|NULL|CASE|WHEN|THEN|ELSE|END|WITH|RECURSIVE|UNION|"
    r"ALL|DISTINCT|OVER|PARTITION|FILTER|EXISTS|BETWEEN|LIKE|DESC|ASC|EXCLUDE|REPLACE|ROWS|RANGE|"
    r"UNNEST|LATERAL|INTERSECT|EXCEPT|TRUE|FALSE|VALUES|CAST|INTERVAL|WINDOW|PRECEDING|FOLLOWING)\b"
)


def spans(line: str) -> list[Span]:
    """What to colour in a line of YAML with SQL in it; later ones lie above earlier ones. Not a
    parser: it must not fail on text that is half typed."""
    found: list[Span] = []
    found.extend(_all(_SQL, line, "info"))
    found.extend(_all(_NUMBER, line, "value"))
    found.extend(_all(_TEST, line, "command"))
    found.extend(_all(_TEXT, line, "string"))
    if key := _KEY.match(line):
        found.append((key.start(2), key.end(2), "key"))
    found.extend((m.start(1), m.end(1), "key") for m in _INLINE_KEY.finditer(line))
    found.extend(_all(_SLOT, line, "value"))
    found.extend(_comment(line, [(a, b) for a, b, _ in _all(_TEXT, line, "string")]))
    return found


def _all(pattern: re.Pattern[str], line: str, role: Role) -> Iterator[Span]:
    return ((match.start(), match.end(), role) for match in pattern.finditer(line))


def _comment(line: str, texts: list[tuple[int, int]]) -> Iterator[Span]:
    """A comment runs to the end, unless its sign stands within quotes."""
    for match in _COMMENT.finditer(line):
        if not any(start < match.start() < end for start, end in texts):
            yield match.start(), len(line), "comment"
            return
