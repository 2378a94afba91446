"""The communicator screen: which one is stuck, which members have not entered, and where those are
blocked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from rich.style import Style
from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical

from oncall.console.evidence_queries import GetCommunicator, GetTraffic
from oncall.core.nodeset import natural
from oncall.core.printable import clean
from oncall.core.units import format_duration
from oncall.render.text.lines import Line, cut, padded
from oncall.render.text.traffic import curve_lines, map_lines
from oncall.tui.drawing.literal import LiteralText
from oncall.tui.drawing.states import STATES, state_styles, styled, theme_style
from oncall.tui.screens.communicators import round_grid
from oncall.tui.screens.communicators.round_grid import LABEL, RoundGrid, RoundHeader
from oncall.tui.shell.actions import Needs, needs
from oncall.tui.shell.goto import Target
from oncall.tui.shell.keys import ActionEntry, always
from oncall.tui.shell.messages import Copy, Refused
from oncall.tui.shell.screen import ConsoleScreen
from oncall.tui.widgets.line_list import LineList
from oncall.views.ranks.communicators import CommunicatorView
from oncall.views.snapshot import CommunicatorSummary, RankState, Snapshot
from oncall.views.traffic.operations import NO_TRAFFIC, TrafficView

_WIDE = 120
_PROGRESS = 28  # columns for who waits how long
_SIZE = 6  # for how many members there are


def _label_room(width: int) -> int:
    """Columns for the label in a list of that width."""
    return max(width - _PROGRESS - _SIZE - 6, 8)


def chosen(
    communicators: Sequence[CommunicatorSummary], text: str = "", faults_only: bool = False
) -> tuple[CommunicatorSummary, ...]:
    """Communicators that have every word in their label or role, or whose hash begins with it: the
    worst first, in the session's order; if no rank waits, by label. `faults_only` keeps those that
    a member waits in and another has not entered."""
    words = text.lower().split()
    found = [
        one
        for one in communicators
        if all(
            word in f"{one.label} {one.role}".lower() or f"{one.comm:#x}".startswith(word)
            for word in words
        )
        and (not faults_only or (one.waiting and one.behind))
    ]
    waiting = [one for one in found if one.waiting]
    calm = [one for one in found if not one.waiting]
    return (*waiting, *sorted(calm, key=lambda one: (-one.size, natural(one.label))))


def progress_phrase(one: CommunicatorSummary) -> str:
    """`1 behind, 14 wait 10 min in 14`."""
    if one.entered < 0 and not one.waiting:
        return "no collective recorded"
    parts = [f"{one.behind:,} behind"] if one.behind else []
    if one.waiting:
        verb = "waits" if one.waiting == 1 else "wait"
        long = f" {format_duration(one.longest_wait_ns)}" if one.longest_wait_ns >= 0 else ""
        parts.append(f"{one.waiting:,} {verb}{long}")
    return ", ".join(parts) or "in step"


def state_of(one: CommunicatorSummary) -> RankState:
    """How bad the communicator's state is, in the states of ranks."""
    if one.waiting and one.behind:
        return RankState.LATE
    return RankState.WAITING if one.waiting else RankState.RUNNING


class CommunicatorList(LineList[CommunicatorSummary]):
    """One line per communicator: its state, its label, how far it has come, which members wait."""

    HELP = """\
Communicators: first those named in findings, then those whose members have waited longest."""

    def key(self, row: CommunicatorSummary) -> int:
        return row.comm

    def dress(self) -> None:
        self._states = state_styles(self.app)
        self._muted = theme_style(self.app, "muted")
        super().dress()

    def draw(self, row: CommunicatorSummary, width: int) -> Iterable[tuple[str, Style]]:
        state = state_of(row)
        room = _label_room(width)
        yield f" {STATES[state].letter} ", self._states[state]
        yield padded(cut(clean(row.label), room), room), Style()
        yield f" {row.size:>{_SIZE},}  ", self._muted
        yield progress_phrase(row), self._states[state] if state else self._muted


class ColumnNames(LiteralText):
    """What the columns of the list are."""

    def on_resize(self) -> None:
        room = _label_room(self.size.width - 1)  # a line of the list begins with its cursor
        self.update(f"    {padded('communicator', room)} {'ranks':>{_SIZE}}  behind, waiting")


_needs_communicator: Needs[ConsoleScreen] = needs(
    "no communicators recorded", lambda screen: screen.query_one(CommunicatorList).row is not None
)
_needs_waiter: Needs[CommunicatorsScreen] = needs(
    "no rank of this row is known to be blocked in another communicator",
    lambda screen: screen.awaited() is not None,
    _needs_communicator,
)
_needs_traffic: Needs[ConsoleScreen] = needs(
    NO_TRAFFIC,
    lambda screen: (view := screen.query_one(RoundGrid).view) and view.has_traffic,
    _needs_communicator,
)
_needs_way_back: Needs[CommunicatorsScreen] = needs(
    "you have not followed a rank here", lambda screen: screen.came_from, always
)


class CommunicatorsScreen(ConsoleScreen):
    """A list, and the chosen communicator's members against its last rounds."""

    CSS = """
    CommunicatorsScreen #listed { width: 62; border-right: solid $panel; }
    CommunicatorsScreen #columns { height: 1; color: $muted; }
    CommunicatorsScreen CommunicatorList { scrollbar-gutter: stable; }
    CommunicatorsScreen #rounds { padding: 0 1; }
    CommunicatorsScreen RoundGrid { height: auto; max-height: 60%; }
    CommunicatorsScreen #round { height: auto; margin-top: 1; }
    CommunicatorsScreen.narrow #communicators { layout: vertical; }
    CommunicatorsScreen.narrow #listed { width: 1fr; height: 7; border-right: none;
        border-bottom: solid $panel; }
    """
    ACTIONS: ClassVar[tuple[ActionEntry[Any], ...]] = (
        ActionEntry("communicators.follow", "enter", "Follow",
                    "Go to the communicator that a rank of this row is blocked in.",
                    _needs_waiter, bar=True),
        ActionEntry("communicators.return", "backspace", "Return",
                    "Go back to the communicator you followed from.",
                    _needs_way_back),
        ActionEntry("communicators.fold", "v", "Fold",
                    "Show one row per member, or one row for members with equal states.",
                    _needs_communicator, bar=True),
        ActionEntry("communicators.rank", "r", "Rank", "Show the row's first rank in the fleet.",
                    _needs_communicator, bar=True),
        ActionEntry("communicators.traffic", "t", "Traffic",
                    "Show what each member transmitted in this round, in microseconds.",
                    _needs_traffic, bar=True),
    )  # fmt: skip

    def compose_body(self) -> ComposeResult:
        with Horizontal(id="communicators"):
            with Vertical(id="listed"):
                yield ColumnNames(id="columns")
                yield CommunicatorList(id="list")
            with Vertical(id="rounds"):
                yield RoundHeader()
                yield RoundGrid(id="grid")
                yield LiteralText(id="round")

    def on_mount(self) -> None:
        self._folded = True
        self._in_traffic = False
        self.came_from: list[int] = []
        self.query_one(CommunicatorList).focus()

    # ------------------------------------------------------------------- shown

    def show_snapshot(self, snapshot: Snapshot) -> None:  # noqa: ARG002
        self.show_narrowed()
        self._ask_view()

    def show_narrowed(self) -> None:
        state = self.state
        known = state.snapshot.communicators if state.snapshot is not None else ()
        rows = chosen(known, state.filter, state.faults_only)
        self.query_one(CommunicatorList).show(rows)
        if not rows:
            fits = "none matches the filter" if known else "none recorded"
            self.query_one("#round", LiteralText).update(f"Communicators: {fits}")

    def on_line_list_moved(self, message: LineList.Moved) -> None:
        if message.control.id == "grid":
            self._show_round()
        else:
            self.after_rest(self._ask_view)

    def on_line_list_pointed(self) -> None:
        self._show_round()

    def _ask_view(self) -> None:
        if (row := self.query_one(CommunicatorList).row) is None:
            return
        rounds = max(self.query_one("#rounds").size.width - LABEL, 20)
        label = f"reading {clean(row.label)}"
        self.ask("view", GetCommunicator(row.comm, rounds), self._take_communicator, label)

    def _take_communicator(self, view: CommunicatorView) -> None:
        self.query_one(RoundGrid).show_view(view, self._folded)
        self._show_round()

    def refused(self, message: Refused) -> None:
        self.query_one("#round", LiteralText).update(Text(clean(str(message.error))))

    def _show_round(self) -> None:
        """Below the members: the round under the cursor, where its ranks are blocked, which of them
        wait."""
        grid, snapshot = self.query_one(RoundGrid), self.state.snapshot
        self.query_one(RoundHeader).show(grid)
        view, row = grid.view, grid.row
        if view is None or row is None or snapshot is None:
            return
        if self._in_traffic and view.has_traffic:
            self._ask_traffic()
            return
        muted, heading = theme_style(self.app, "muted"), theme_style(self.app, "primary", bold=True)
        text = Text()
        if len(view.seqs):
            is_found = view.seqs[grid.column] == view.finding_seq
            remark = " (the finding is about this one)" if is_found else ""
            first, *others = round_grid.round_lines(view, grid.column, remark)
            text.append(first + "\n", "bold")
            text.append("".join(f"{line}\n" for line in others))
        text.append(round_grid.where_phrase(snapshot, view.summary.comm, row) + "\n", muted)
        if view.waits:
            text.append("\nWaits\n", heading)
            text.append("\n".join(clean(wait) for wait in view.waits))
        self.query_one("#round", LiteralText).update(text)

    def _ask_traffic(self) -> None:
        grid = self.query_one(RoundGrid)
        if (view := grid.view) is None:
            return
        comm = view.summary.comm
        seq = int(view.seqs[grid.column]) if len(view.seqs) else None
        self.ask("traffic", GetTraffic(comm, seq), self._show_traffic, "reading traffic")

    def _show_traffic(self, view: TrafficView) -> None:
        """Below the members, instead of the waits: what each member transmitted."""
        if not self._in_traffic:
            return
        pane = self.query_one("#rounds").content_size
        height = pane.height - self.query_one(RoundGrid).size.height - 2
        lines = pane_lines(view, pane.width, height)
        self.query_one("#round", LiteralText).update(styled(self, lines))

    def on_resize(self, event: object) -> None:
        super().on_resize(event)  # type: ignore[arg-type]
        self.set_class(self.size.width < _WIDE, "narrow")
        self.call_after_refresh(self._show_round)

    # ----------------------------------------------------------------- actions

    def go_to(self, target: Target) -> str | None:
        if self.query_one(CommunicatorList).go_to(target.value):
            return None
        return "the filter hides it, or this job has no such communicator"

    def copies(self) -> tuple[Copy, ...]:
        row, grid = self.query_one(CommunicatorList).row, self.query_one(RoundGrid)
        if row is None:
            return ()
        description = str(self.query_one("#round", LiteralText).content)
        copies = [
            Copy("t", "text", description),
            Copy("h", f"hash {row.comm:#x}", f"{row.comm:#x}"),
        ]
        if grid.row is not None:
            copies.append(Copy("r", grid.row.label, grid.row.label))
        return tuple(copies)

    def leave(self) -> bool:
        if self._in_traffic:
            self.action_traffic()
            return True
        if self.came_from:
            self.action_return()
            return True
        return False

    def awaited(self) -> int | None:
        """Another communicator in which a rank of the row under the cursor is blocked."""
        snapshot, grid = self.state.snapshot, self.query_one(RoundGrid)
        if snapshot is None or grid.view is None or grid.row is None:
            return None
        found = round_grid.elsewhere(snapshot, grid.view.summary.comm, grid.row.ranks)
        return None if found is None else found[1]

    def action_follow(self) -> None:
        here, there = self.query_one(CommunicatorList).row, self.awaited()
        if here is not None and there is not None:
            if self.query_one(CommunicatorList).go_to(there):
                self.came_from.append(here.comm)
            else:
                self.tell("the filter hides that communicator")

    def action_return(self) -> None:
        self.query_one(CommunicatorList).go_to(self.came_from.pop())

    def action_fold(self) -> None:
        grid = self.query_one(RoundGrid)
        self._folded = not self._folded
        if grid.view is not None:
            grid.show_view(grid.view, self._folded)

    def action_traffic(self) -> None:
        self._in_traffic = not self._in_traffic
        self._show_round()

    def action_rank(self) -> None:
        if (row := self.query_one(RoundGrid).row) is not None:
            self.app.go_to(Target("rank", row.ranks[0]))


_AROUND = 6  # lines of a drawing that are no rank's
_LEAST_RANKS = 4


def pane_lines(view: TrafficView, width: int, height: int) -> list[Line]:
    """At most `width` columns; as many ranks as fit into `height` lines, the blamed in any case."""
    ranks = max(height - _AROUND, _LEAST_RANKS)
    lines = curve_lines(view.curves, width, ranks)
    routes = [Line(), *map_lines(view.routes, width)]
    return lines + routes if len(lines) + len(routes) <= height else lines
