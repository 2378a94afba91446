"""Lines of bars to scale over time, with a cursor on one of the bars; and a strip of all pictures.

A picture is an iteration or a collective, a lane what one rank did in it, a bar one task or step. A
subclass says how its lanes and bars are called and drawn; where the cursor goes, what a click hits
and how wide everything is, is the same for all.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeVar

from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType

from oncall.render.text.lines import cut, padded
from oncall.tui.drawing.literal import LiteralText
from oncall.tui.drawing.states import theme_style
from oncall.tui.widgets.line_list import LineList

Look = Literal["normal", "late", "open"]
Strip = list[tuple[str, Look, bool]]
BLOCKS = "▁▂▃▄▅▆▇█"


class Bar(Protocol):
    """Something that took its time. Instants are Unix ns; the end is None where it is not over."""

    @property
    def started_ns(self) -> int: ...
    @property
    def ended_ns(self) -> int | None: ...


class Lane(Protocol):
    """What one rank did. `blamed`: some of it made the others wait."""

    @property
    def rank(self) -> int: ...
    @property
    def node(self) -> str: ...
    @property
    def blamed(self) -> bool: ...


class Drawing(Protocol):
    """Lanes, from above, and the instants between which they are drawn."""

    @property
    def lanes(self) -> Sequence[Any]: ...
    @property
    def shown_ns(self) -> tuple[int, int]: ...


AnyBar = TypeVar("AnyBar", bound=Bar)
AnyLane = TypeVar("AnyLane", bound=Lane)


# ----------------------------------------------------------------------- strip


def window(count: int, width: int, at: int) -> tuple[int, int]:
    """Which of `count` pictures fit into `width` columns: the last ones, and `at` always."""
    first = max(0, min(max(0, count - width), at - width // 4))
    return first, min(count, first + width)


def strip(heights: Sequence[tuple[float | None, Look]], width: int, at: int) -> Strip:
    """A glyph for each picture that fits, by its height from 0 to 1 (None: not known), its look,
    and whether it is the one drawn, which is number `at`."""
    first, last = window(len(heights), max(width, 1), at)
    return [
        (
            "?" if height is None else BLOCKS[min(max(int(height * len(BLOCKS)), 0), 7)],
            look,
            place == at,
        )
        for place, (height, look) in enumerate(heights[first:last], first)
    ]


@dataclass(frozen=True)
class Pictures:
    """All pictures of a view, in order: the key of each, and its height as `strip` takes it;
    `shown` is the key of the one that is drawn."""

    keys: Sequence[Hashable]
    heights: Sequence[tuple[float | None, Look]]
    shown: Hashable

    @property
    def at(self) -> int:
        """Which of them is drawn."""
        return self.keys.index(self.shown) if self.shown in self.keys else 0

    def neighbour(self, step: int) -> Any:
        """The key of the one before (-1) or after (1) it; None at the end."""
        at = self.at + step
        return self.keys[at] if 0 <= at < len(self.keys) else None

    def strip(self, width: int) -> Strip:
        return strip(self.heights, width, self.at)


# ---------------------------------------------------------------------- cursor


def matching(lanes: Sequence[AnyLane], text: str, faults_only: bool) -> tuple[AnyLane, ...]:
    """Those whose title, rank and node hold every word, and that hold something blamed."""
    words = text.lower().split()
    return tuple(
        lane
        for lane in lanes
        if all(word in _called(lane) for word in words) and (lane.blamed or not faults_only)
    )


def _called(lane: Lane) -> str:
    return f"{getattr(lane, 'title', '')} rank {lane.rank} {lane.node}".lower()


def instant(drawing: Drawing, column: int, columns: int) -> int:
    """The instant in the middle of a column of the picture."""
    first, last = drawing.shown_ns
    return first + (2 * column + 1) * (last - first) // (2 * columns)


def inside(bar: Bar) -> int:
    """An instant within a bar, by which it is found again."""
    return bar.started_ns if bar.ended_ns is None else (bar.started_ns + bar.ended_ns) // 2


def away(bar: Bar, at_ns: int) -> int:
    """How far an instant is from a bar, in ns; 0 within it."""
    end_ns = at_ns if bar.ended_ns is None else bar.ended_ns
    return max(bar.started_ns - at_ns, at_ns - end_ns, 0)


def beside(stops: Sequence[AnyBar], here: Bar, by: int) -> AnyBar | None:
    """The bar before (-1) or after (1) this one, by start; None at the end of the lane."""
    if here in stops:
        at = stops.index(here) + by
    else:
        earlier = sum(bar.started_ns <= here.started_ns for bar in stops)
        at = earlier if by > 0 else earlier - 1
    return stops[at] if 0 <= at < len(stops) else None


def next_on_path(path: Sequence[tuple[int, AnyBar]], here: Bar | None) -> tuple[int, AnyBar] | None:
    """The lane and bar after this one on a path; after the last one, the first; None: no path."""
    if not path:
        return None
    at = next((number for number, (_, bar) in enumerate(path) if bar == here), None)
    if at is not None:
        return path[(at + 1) % len(path)]
    later = (one for one in path if here is not None and one[1].started_ns > here.started_ns)
    return next(later, path[0])


# -------------------------------------------------------------------- the lanes

AnyDrawing = TypeVar("AnyDrawing", bound=Drawing)


class Lanes(LineList[AnyLane], Generic[AnyDrawing, AnyLane, AnyBar]):
    """Up and down choose a lane, left and right one of its bars. The cursor keeps its time when it
    changes lanes, and its bar when the same picture comes anew."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,h", "aside(-1)", "Before", id="lanes.left", show=False),
        Binding("right,l", "aside(1)", "After", id="lanes.right", show=False),
    ]
    WIDEST_NAME: ClassVar[int]
    BESIDE: ClassVar[str] = ""  # what stands at the right of each lane, its columns wide

    def __init__(self, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self.drawing: AnyDrawing | None = None
        self._pointed: AnyBar | None = None
        self._cursor_ns: int | None = None  # None: where a lane begins to matter

    # ------------------------------------------------- what a subclass overrides

    @abstractmethod
    def bars(self, lane: AnyLane) -> Sequence[AnyBar]:
        """All bars of a lane, by start."""

    def stops(self, lane: AnyLane) -> Sequence[AnyBar]:
        """Those that left and right stop at."""
        return self.bars(lane)

    def bar_at(self, lane: AnyLane, at_ns: int) -> AnyBar | None:
        """What runs at an instant, or is the nearest to it."""
        return min(self.bars(lane), key=lambda bar: away(bar, at_ns), default=None)

    @abstractmethod
    def first_bar(self, lane: AnyLane) -> AnyBar | None:
        """Where the cursor begins on a lane."""

    @abstractmethod
    def beginning(self, drawing: AnyDrawing) -> tuple[int, AnyBar] | None:
        """The lane and the bar that the cursor begins at, if any is better than the first."""

    @abstractmethod
    def path(self) -> Sequence[tuple[int, AnyBar]]:
        """The critical path as far as it is drawn: lane and bar, by start."""

    @abstractmethod
    def is_same(self, before: AnyDrawing, now: AnyDrawing) -> bool:
        """Whether both are of the same iteration or collective."""

    @abstractmethod
    def name_of(self, lane: AnyLane) -> str:
        """The label of a lane."""

    @abstractmethod
    def pieces(
        self, lane: AnyLane, columns: int, under: AnyBar | None
    ) -> Iterable[tuple[str, Style]]:
        """The lane in `columns` columns, with the bar under the cursor; then what is BESIDE."""

    @abstractmethod
    def axis(self, columns: int) -> str:
        """Times below the lanes."""

    @abstractmethod
    def legend(self) -> Iterable[tuple[str, Style, str]]:
        """Glyphs with their style, and what they mean."""

    # ------------------------------------------------------------------- shown

    def draw_lanes(self, drawing: AnyDrawing) -> None:
        """Draw another one; the cursor begins where it matters, or stays on its bar."""
        before, self.drawing = self.drawing, drawing
        same = before is not None and self.is_same(before, drawing)
        if not same:
            self._pointed = self._cursor_ns = None
        self.show(drawing.lanes)
        if not same and (found := self.beginning(drawing)) is not None:
            self.go_to_bar(*found)
        self.refresh()

    @property
    def bar(self) -> AnyBar | None:
        """The bar that the cursor is on."""
        if self.row is None:
            return None
        if self._pointed is not None and self._pointed in self.bars(self.row):
            return self._pointed
        if self._cursor_ns is None:
            return self.first_bar(self.row)
        return self.bar_at(self.row, self._cursor_ns)

    def go_to_bar(self, lane: int, bar: AnyBar) -> None:
        """Put the cursor on a bar."""
        self._move(lane)
        self._point_to(bar)

    @property
    def label_columns(self) -> int:
        """Columns before the picture, the cursor's mark not among them."""
        widest = max((len(self.name_of(lane)) for lane in self.rows), default=0)
        return min(widest, self.WIDEST_NAME) + 1

    @property
    def columns(self) -> int:
        """Columns of the picture."""
        room = self.scrollable_content_region.width  # what a scroll bar leaves
        return max(room - 1 - self.label_columns - len(self.BESIDE), 1)

    # ----------------------------------------------------------------- drawing

    def key(self, row: AnyLane) -> int:
        return row.rank

    def dress(self) -> None:
        self.blamed = theme_style(self.app, "state-blamed", bold=True)
        self.muted = theme_style(self.app, "muted")
        super().dress()

    def draw(self, row: AnyLane, width: int) -> Iterable[tuple[str, Style]]:
        label = self.label_columns
        name = padded(cut(self.name_of(row), label - 1), label)
        yield name, self.blamed if row.blamed else Style()
        under = self.bar if self.row is row else None
        yield from self.pieces(row, min(self.columns, width), under)

    def legend_line(self) -> Text:
        """The legend in its colours."""
        text = Text(no_wrap=True, overflow="ellipsis")
        for glyphs, style, means in self.legend():
            text.append(glyphs, style)
            text.append(f" {means} ", self.muted)
        return text

    # ------------------------------------------------------------------ cursor

    def _point_to(self, bar: AnyBar | None) -> None:
        if bar is None:
            return
        self._pointed, self._cursor_ns = bar, inside(bar)
        self.refresh()
        self.post_message(self.Pointed())

    def action_aside(self, by: int) -> None:
        here = self.bar
        if self.row is not None and here is not None:
            self._point_to(beside(self.stops(self.row), here, by))

    def on_click(self, event: events.Click) -> None:
        super().on_click(event)
        column = event.x - 1 - self.label_columns
        if self.drawing is not None and self.row is not None and 0 <= column < self.columns:
            at_ns = instant(self.drawing, column, self.columns)
            self._point_to(self.bar_at(self.row, at_ns))


class LanesAxis(LiteralText):
    """Below the lanes: time since the picture began, and what the numbers at the right are."""

    DEFAULT_CSS = "LanesAxis { height: 1; }"

    def show(self, lanes: Lanes[Any, Any, Any]) -> None:
        line = ""
        if lanes.drawing is not None:
            line = " " * (lanes.label_columns + 1)
            line += padded(lanes.axis(lanes.columns), lanes.columns) + lanes.BESIDE
        text = Text(line.rstrip(), theme_style(self.app, "muted"), no_wrap=True, overflow="crop")
        self.update(text, layout=False)
