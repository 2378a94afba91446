"""What the screens with lanes have in common: a strip of all pictures, the lanes of one, and below
them what the cursor is on.

A subclass reads a view, says which picture is in it, and tells the bar under the cursor. Reading,
choosing, walking along the critical path and what cannot be done are the same for all.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

from rich.style import Style
from rich.text import Text
from textual.app import ComposeResult
from textual.containers import VerticalScroll

from oncall.core.printable import clean
from oncall.tui.drawing.abstract import AbstractMeta
from oncall.tui.drawing.literal import LiteralText
from oncall.tui.drawing.states import theme_style
from oncall.tui.shell.actions import needs_snapshot
from oncall.tui.shell.goto import Target
from oncall.tui.shell.keys import ActionEntry
from oncall.tui.shell.messages import Refused
from oncall.tui.shell.screen import ConsoleScreen
from oncall.tui.shell.state import State
from oncall.tui.widgets.lanes import Lanes, LanesAxis, Pictures, next_on_path
from oncall.tui.widgets.line_list import LineList

if TYPE_CHECKING:
    from oncall.console.session import Query

_TALL = 36  # lines, from which on there is room for everything


@dataclass(frozen=True)
class Words:
    """What a screen calls its pictures where something cannot be done."""

    picture: str  # "iteration"
    known: str  # "that was recorded", of the first and the last one
    worst: str  # "the worst iteration"
    one: str  # "rank": what a lane is
    bar: str  # "task"


def lane_actions(screen: str, words: Words) -> dict[str, ActionEntry[Any]]:
    """The actions that every screen with lanes has, by the last part of their ids."""
    before = partial(_needs_neighbour, step=-1, which="first")
    after = partial(_needs_neighbour, step=1, which="last")
    entries = (
        ActionEntry(f"{screen}.critical", "c", "Critical",
                    f"Go to the next {words.bar} on the critical path.", _needs_path, bar=True),
        ActionEntry(f"{screen}.before", "left_parenthesis", "Before",
                    f"Show the previous {words.picture}.", before, bar=True, by=("neighbour", -1)),
        ActionEntry(f"{screen}.after", "right_parenthesis", "After",
                    f"Show the next {words.picture}.", after, bar=True, by=("neighbour", 1)),
        ActionEntry(f"{screen}.worst", "w", "Worst",
                    f"Show {words.worst} again.", _needs_choice),
        ActionEntry(f"{screen}.rank", "r", "Rank",
                    f"Show this {words.one} in the fleet.", needs_picture),
    )  # fmt: skip
    return {entry.id.rpartition(".")[2]: entry for entry in entries}


def needs_picture(screen: LaneScreen) -> str | None:
    """Why not, as long as nothing is drawn."""
    if why := needs_snapshot(screen):
        return why
    return None if screen.has_view else screen.why_nothing


def _needs_neighbour(screen: LaneScreen, step: int, which: str) -> str | None:
    if why := needs_picture(screen):
        return why
    why_not = f"this is the {which} {screen.WORDS.picture} {screen.WORDS.known}"
    return why_not if screen.neighbour(step) is None else None


def _needs_choice(screen: LaneScreen) -> str | None:
    if why := needs_picture(screen):
        return why
    return None if screen.chosen else f"{screen.WORDS.worst} is already shown"


def _needs_path(screen: LaneScreen) -> str | None:
    if why := needs_picture(screen):
        return why
    unknown = f"the critical path is unknown: the data of this {screen.WORDS.picture} is incomplete"
    return None if screen.lanes.path() else unknown


class LaneScreen(ConsoleScreen, metaclass=AbstractMeta):
    """A strip of pictures, the lanes of one, and the bar under the cursor."""

    CSS_PATH = Path(__file__).with_name("lanes.tcss")  # also of screens in other folders
    WORDS: ClassVar[Words]
    EMPTY: ClassVar[str]  # where such pictures come from, for who has none
    view: Any  # what is shown; None before something was read
    why_nothing: str  # is shown

    # ------------------------------------------------- what a subclass overrides

    @abstractmethod
    def make_lanes(self) -> Lanes[Any, Any, Any]:
        """The lanes, with the id `lanes`."""

    @abstractmethod
    def compose_below(self) -> ComposeResult:
        """What is below the lanes (id `below`): a `#card` with `#description` in it."""

    @abstractmethod
    def reading(self) -> Query[Any]:
        """What to ask for: the chosen view, or the worst."""

    @abstractmethod
    def drawing(self, view: Any, text: str, faults_only: bool) -> Any:
        """The picture of a view, with the lanes that are wanted."""

    @abstractmethod
    def headline(self, view: Any, width: int) -> str:
        """One line over everything."""

    @abstractmethod
    def pictures(self, view: Any) -> Pictures:
        """All pictures, of which one is drawn."""

    @abstractmethod
    def strip_phrase(self, view: Any) -> str:
        """The text beside the strip."""

    def notes(self, view: Any) -> Iterable[str]:  # noqa: ARG002
        """Lines below the legend, about what is blamed."""
        return ()

    @abstractmethod
    def bar_reading(self, lane: Any, bar: Any) -> Query[Any]:
        """What to ask for a bar, once the cursor rests on it."""

    @abstractmethod
    def is_of(self, answer: Any, lane: Any, bar: Any) -> bool:
        """Whether that answer is about this bar."""

    @abstractmethod
    def bar_text(self, lane: Any, bar: Any, answer: Any | None) -> Text:
        """What is known of the bar at once, and, when it is there, what the answer adds."""

    def show_beside(self, view: Any) -> None:
        """Show what is neither lanes nor bar."""

    # ------------------------------------------------------------------- shown

    def compose_body(self) -> ComposeResult:
        yield LiteralText(id="shown")
        yield self.make_lanes()
        yield LanesAxis()
        yield from self.compose_below()

    def on_mount(self) -> None:
        self.view = None
        self.why_nothing = "still reading"
        self.chosen_key: Hashable | None = None  # None: the worst, whichever it comes to be
        self._answer: Any = None
        self.lanes.focus()

    @property
    def lanes(self) -> Lanes[Any, Any, Any]:
        return cast("Lanes[Any, Any, Any]", self.query_one("#lanes"))

    @property
    def has_view(self) -> bool:
        return self.view is not None

    def neighbour(self, step: int) -> Any:
        """The key of the picture before (-1) or after (1) the one shown; None at the end."""
        return self.pictures(self.view).neighbour(step)

    @property
    def chosen(self) -> bool:
        """Whether the reader chose what is shown."""
        return self.chosen_key is not None

    def show(self, state: State, before: State | None) -> None:
        if state.snapshot is None:
            return
        if state.snapshot.diagnosis.pending:  # what lanes are drawn from takes as long
            if not self.has_view:
                self._show_nothing("read once all rulebooks have run", advice="")
            else:
                self.tell("drawn as it was; the moment shown is still being judged")
        elif before is None or before.snapshot is not state.snapshot:
            self.ask_view()
        elif (state.filter, state.faults_only) != (before.filter, before.faults_only):
            self._show_lanes()

    def ask_view(self) -> None:
        label = f"reading {self.WORDS.picture}s"
        self.ask("view", self.reading(), self._take_view, label, self._without_view)

    def _take_view(self, view: Any) -> None:
        self.view, self._answer = view, None
        self.set_class(False, "nothing")
        self._show_lanes()

    def _take_bar(self, answer: Any) -> None:
        self._answer = answer
        self.draw_bar()

    def refused(self, message: Refused) -> None:
        self.tell(clean(str(message.error)))

    def _without_view(self, message: Refused) -> None:
        why = clean(str(message.error))
        if self.chosen:  # it is not there, or not at this moment
            self.tell(why)
            self.action_worst()
        else:
            self._show_nothing(why)

    def _show_nothing(self, why: str, advice: str | None = None) -> None:
        self.view, self.why_nothing = None, why
        self.lanes.show(())
        self.query_one(LanesAxis).update("")
        text = Text(f"{why[:1].upper()}{why[1:]}.\n\n")
        text.append(self.EMPTY if advice is None else advice, theme_style(self.app, "muted"))
        self.set_class(True, "nothing")
        self.query_one("#shown", LiteralText).styles.height = None
        self.query_one("#shown", LiteralText).update(text)

    def _show_lanes(self) -> None:
        if self.view is not None:
            drawn = self.drawing(self.view, self.state.filter, self.state.faults_only)
            self.lanes.draw_lanes(drawn)
            self.call_after_refresh(self.show_all)

    def show_all(self) -> None:
        """All that is around the lanes."""
        if self.view is None:
            return
        self.query_one(LanesAxis).show(self.lanes)
        heading, shown = self._heading(self.view), self.query_one("#shown", LiteralText)
        shown.styles.height = heading.plain.count("\n") + 1
        shown.update(heading, layout=False)
        self._show_bar()
        self.show_beside(self.view)

    def _heading(self, view: Any) -> Text:
        looks = {
            "normal": theme_style(self.app, "primary"),
            "late": theme_style(self.app, "state-blamed", bold=True),
            "open": theme_style(self.app, "state-unknown"),
        }
        text = Text(no_wrap=True, overflow="ellipsis")
        text.append(self.headline(view, self.size.width - 2), Style(bold=True))
        if self.has_class("opened") and not self.has_class("tall"):
            return text
        text.append("\n")
        phrase = self.strip_phrase(view)
        room = max(self.size.width - len(phrase) - 5, 10)
        for glyph, look, here in self.pictures(view).strip(room):
            text.append(glyph, looks[look] + Style(reverse=here))
        text.append(f"  {phrase}\n", theme_style(self.app, "muted"))
        if self.lanes.rows:
            text.append_text(self.lanes.legend_line())
        else:
            why, key = ("matches", "esc") if self.state.filter else ("is blamed", "f")
            text.append(f"No {self.WORDS.one} {why}; {key} shows all again.")
        for note in self.notes(view):
            text.append(f"\n{note}", theme_style(self.app, "state-blamed", bold=True))
        return text

    def _show_bar(self) -> None:
        """What the picture knows of the bar at once; the rest is asked for."""
        lane, bar = self.lanes.row, self.lanes.bar
        if self._answer is not None and not self.is_of(self._answer, lane, bar):
            self._answer = None
        if self._answer is None and bar is not None:
            self.after_rest(self._ask_bar)
        self.draw_bar()

    def draw_bar(self) -> None:
        """The bar under the cursor, as far as it is known."""
        lane, bar = self.lanes.row, self.lanes.bar
        known = self.view is not None and bar is not None
        text = self.bar_text(lane, bar, self._answer) if known else ""
        self.query_one("#description", LiteralText).update(text)

    def _ask_bar(self) -> None:
        lane, bar = self.lanes.row, self.lanes.bar
        if self.view is not None and bar is not None:
            label = f"reading the {self.WORDS.bar}"
            self.ask("bar", self.bar_reading(lane, bar), self._take_bar, label)

    @property
    def card_width(self) -> int:
        """Columns for the text about the bar."""
        pane = self.query_one("#card", VerticalScroll)
        return max(pane.scrollable_content_region.width, 20)

    def on_line_list_moved(self, message: LineList.Moved) -> None:
        message.stop()
        if message.control is self.lanes:
            self.pointed()
        self.show_keys()

    def on_line_list_pointed(self) -> None:
        self.pointed()

    def pointed(self) -> None:
        """The cursor came to another bar."""
        self.query_one("#card", VerticalScroll).scroll_home(animate=False)
        self._show_bar()

    def on_resize(self, event: object) -> None:
        super().on_resize(event)  # type: ignore[arg-type]
        self.set_class(self.size.height >= _TALL, "tall")
        self.call_after_refresh(self.show_all)

    # ----------------------------------------------------------------- actions

    def cursor_is_on(self) -> str:
        row = self.lanes.row
        return "" if row is None else f"rank {row.rank}"

    def leave(self) -> bool:
        if self.focused is not self.lanes:
            self.lanes.focus()
            return True
        if self.chosen:
            self.action_worst()
            return True
        return False

    def choose(self, key: Hashable | None) -> None:
        """Show that one; None: the worst."""
        self.chosen_key = key
        self.ask_view()

    def action_neighbour(self, step: int) -> None:
        self.choose(self.neighbour(step))

    def action_worst(self) -> None:
        self.choose(None)

    def action_critical(self) -> None:
        if (found := next_on_path(self.lanes.path(), self.lanes.bar)) is not None:
            self.lanes.go_to_bar(*found)

    def action_rank(self) -> None:
        if (row := self.lanes.row) is not None:
            self.app.go_to(Target("rank", row.rank))
