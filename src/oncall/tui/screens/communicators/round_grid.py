"""Members of a communicator against its last rounds: a row each, or one for members with equal
rounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from rich.style import Style
from rich.text import Text
from textual.binding import Binding, BindingType

from oncall.core.units import NS_PER_S, format_bytes, format_duration, format_rate
from oncall.render.text.lines import cut, padded
from oncall.tui.drawing.literal import LiteralText
from oncall.tui.drawing.states import STATES, state_styles, theme_style
from oncall.tui.models.rates import BLOCKS, GAP, GAP_GLYPH, Scale, levels, nice_ceiling
from oncall.tui.widgets.line_list import LineList
from oncall.views.ranks.communicators import DONE, NOT_ENTERED, UNKNOWN, WAITING, CommunicatorView
from oncall.views.snapshot import RankState, Snapshot
from oncall.views.words import ranks_phrase

LABEL = 26  # columns before the rounds, the cursor's mark among them
_END = 6  # columns behind them, for the number of the last
# What a member does in a round, in the words of what ranks do.
CELLS = np.array([RankState.LATE, RankState.WAITING, RankState.RUNNING, RankState.UNKNOWN])


@dataclass(frozen=True)
class MemberRow:
    """Members that did the same in every round shown. `state` (rounds,) as in the view."""

    ranks: tuple[int, ...]
    label: str
    state: npt.NDArray[np.int8]


def member_rows(view: CommunicatorView, folded: bool = True) -> tuple[MemberRow, ...]:
    """Members that have not entered first, then members that wait. With `folded`, members with
    equal rounds share a row."""
    if not len(view.ranks):
        return ()
    if folded and len(view.seqs):
        kinds, member = np.unique(view.state, axis=0, return_inverse=True)
        together = [view.ranks[member.ravel() == kind] for kind in range(len(kinds))]
    else:
        kinds, together = (
            view.state,
            [view.ranks[place : place + 1] for place in range(len(view.ranks))],
        )
    rows = [
        MemberRow(tuple(ranks.tolist()), ranks_phrase(ranks.tolist()), state)
        for ranks, state in zip(together, kinds, strict=True)
    ]
    column = finding_column(view)
    return tuple(sorted(rows, key=lambda row: (_badness(row, column), row.ranks[0])))


def _badness(row: MemberRow, column: int | None) -> int:
    """Not entered, waiting, unknown, done: in the round that matters."""
    if column is None:
        return 0
    return (NOT_ENTERED, WAITING, UNKNOWN, DONE).index(int(row.state[column]))


def finding_column(view: CommunicatorView) -> int | None:
    """The round that matters: the one a finding is about, else the last; None without rounds."""
    if not len(view.seqs):
        return None
    return column_of(view, view.finding_seq)


def column_of(view: CommunicatorView, seq: int | None) -> int:
    """The column of an operation; the last one if it is not among the rounds, 0 without any."""
    found: list[int] = [] if seq is None else np.flatnonzero(view.seqs == seq).tolist()
    return found[0] if found else max(len(view.seqs) - 1, 0)


def round_lines(view: CommunicatorView, column: int, remark: str = "") -> tuple[str, ...]:
    """A round in words: which members have entered, and how long it took at which rate."""
    state, took = view.state[:, column], view.duration_ns[:, column]
    waiting, absent = (view.ranks[state == one].tolist() for one in (WAITING, NOT_ENTERED))
    counted = [f"{int((state == DONE).sum()):,} of {len(view.ranks):,} done"]
    if waiting:
        counted.append(f"{ranks_phrase(waiting)} waiting")
    if absent:
        counted.append(f"{ranks_phrase(absent)} not entered")
    if unknown := int((state == UNKNOWN).sum()):
        counted.append(f"{unknown:,} unknown")
    size = view.round_bytes[column] if column < len(view.round_bytes) else None
    payload = f" of {format_bytes(size)}" if size else ""
    number = f"{view.ops[column]} {view.seqs[column]}"
    lines = [f"{number}{payload}{remark}: {' · '.join(counted)}"]
    if len(known := np.sort(took[took >= 0]).tolist()):
        shortest, longest, median = known[0], known[-1], known[len(known) // 2]
        rate = f" · {format_rate(size * NS_PER_S / longest)} per member" if size and longest else ""
        span = " to ".join(dict.fromkeys(map(format_duration, (shortest, longest))))
        rank = view.ranks[took.argmax()]
        lines.append(f"took {span} (rank {rank}), median {format_duration(median)}{rate}")
    return tuple(lines)


def durations(view: CommunicatorView) -> npt.NDArray[np.float64]:
    """(rounds,) seconds of each round's longest member; NaN where none is done."""
    if not view.duration_ns.size:
        return np.full(len(view.seqs), np.nan)
    longest = view.duration_ns.max(axis=0)
    return np.where(longest >= 0, longest / NS_PER_S, np.nan)


def window(rounds: int, width: int, column: int) -> tuple[int, int]:
    """The rounds [first, last) that fit into `width` columns: the newest, and `column` always."""
    first = max(0, rounds - width)
    first = max(0, min(first, column))
    return first, min(rounds, first + width)


def axis(view: CommunicatorView, first: int, last: int, column: int) -> str:
    """`812      ▼ ^  `: the first operation's number, the finding_at one's mark, the cursor's."""
    marks = list(str(view.seqs[first])[: last - first].ljust(last - first))
    if (
        view.finding_seq is not None
        and first <= (finding_at := column_of(view, view.finding_seq)) < last
    ):
        marks[finding_at - first] = "▼"
    if marks[column - first] != "▼":
        marks[column - first] = "^"
    return "".join(marks)


def shown_states(row: MemberRow, column: int | None) -> list[int]:
    """RankState of a row's cells; waiting in `column`, which a finding is about, is hung."""
    states: list[int] = CELLS[row.state].tolist()
    if column is not None and states[column] == RankState.WAITING:
        states[column] = RankState.HUNG
    return states


# --------------------------------------------------------------------- follow


def blocked_in(snapshot: Snapshot, rank: int) -> tuple[int, int]:
    """The communicator and operation a rank is blocked in; (0, -1): none known."""
    if (at := snapshot.ranks.place(rank)) is None:
        return 0, -1
    return int(snapshot.ranks.comm[at]), int(snapshot.ranks.seq[at])


def elsewhere(snapshot: Snapshot, comm: int, ranks: Sequence[int]) -> tuple[int, int] | None:
    """The first of `ranks` that is blocked in another communicator, and which: (rank, comm)."""
    wanted = np.isin(snapshot.ranks.rank, np.asarray(ranks, dtype=np.int64))
    found = np.flatnonzero(wanted & (snapshot.ranks.comm != comm) & (snapshot.ranks.comm != 0))
    if not len(found):
        return None
    return int(snapshot.ranks.rank[found[0]]), int(snapshot.ranks.comm[found[0]])


def where_phrase(snapshot: Snapshot, comm: int, row: MemberRow) -> str:
    """What the members of a row are blocked in now, as far as that is known."""
    if (other := elsewhere(snapshot, comm, row.ranks)) is not None:
        rank, there = other
        label = next((one.label for one in snapshot.communicators if one.comm == there), hex(there))
        seq = blocked_in(snapshot, rank)[1]
        operation = f"operation {seq} of " if seq >= 0 else ""
        return f"rank {rank} is blocked in {operation}{label}"
    held = np.isin(snapshot.ranks.rank, np.asarray(row.ranks, dtype=np.int64))
    if not held.any():
        return f"{row.label}: {STATES[RankState.UNKNOWN].says}"
    state = int(snapshot.ranks.state[held].max())
    worst = snapshot.ranks.rank[held & (snapshot.ranks.state == state)]
    return f"{ranks_phrase(worst.tolist())}: {STATES[state].says}"


# -------------------------------------------------------------------- widgets


class RoundGrid(LineList[MemberRow]):
    """Rounds are columns, the newest at the right; the cursor is on a row and a column."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,h", "aside(-1)", "Previous round", id="rounds.left", show=False),
        Binding("right,l", "aside(1)", "Next round", id="rounds.right", show=False),
    ]
    HELP = """\
Members (rows) by the last rounds (columns), newest at the right. Members with equal states share \
a row. ▼ marks the round that the finding is about."""

    def __init__(self, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self.view: CommunicatorView | None = None
        self._seq: int | None = None  # that the column cursor stays on; None: the one that matters

    def show_view(self, view: CommunicatorView, folded: bool) -> None:
        """Show a communicator; another one than before begins at the round that matters."""
        before = self.view
        if before is None or before.summary.comm != view.summary.comm:
            self._seq = None
        self.view = view
        self.show(member_rows(view, folded))
        if before is None or not np.array_equal(before.seqs, view.seqs):
            self.refresh()

    @property
    def column(self) -> int:
        """The column that the cursor is on; 0 without rounds."""
        if self.view is None:
            return 0
        return column_of(self.view, self.view.finding_seq if self._seq is None else self._seq)

    @property
    def rounds_shown(self) -> tuple[int, int]:
        """[first, last) of the columns in sight."""
        rounds = 0 if self.view is None else len(self.view.seqs)
        return window(rounds, max(self.size.width - LABEL - _END, 1), self.column)

    # ----------------------------------------------------------------- drawing

    def key(self, row: MemberRow) -> int:
        return row.ranks[0]

    def unchanged(self, before: MemberRow, now: MemberRow) -> bool:
        return before.ranks == now.ranks and np.array_equal(before.state, now.state)

    def dress(self) -> None:
        self._states = state_styles(self.app)
        super().dress()

    def draw(self, row: MemberRow, width: int) -> Iterable[tuple[str, Style]]:  # noqa: ARG002
        yield padded(cut(row.label, LABEL - 2), LABEL - 1), Style()
        if self.view is None or not len(self.view.seqs):
            yield "no rounds recorded", Style(dim=True)
            return
        first, last = self.rounds_shown
        finding_at = finding_column(self.view) if self.view.finding_seq is not None else None
        states = shown_states(row, finding_at)
        for column in range(first, last):
            style = self._states[states[column]]
            if column == self.column:
                style += Style(underline=True, bold=True)
            yield STATES[states[column]].letter, style

    # ------------------------------------------------------------------ cursor

    def action_aside(self, step: int) -> None:
        if self.view is None or not len(self.view.seqs):
            return
        column = min(max(self.column + step, 0), len(self.view.seqs) - 1)
        if column != self.column:
            self._seq = int(self.view.seqs[column])
            self.refresh()
            self.post_message(self.Pointed())


class RoundHeader(LiteralText):
    """Above the members: how long each round took, and which it was."""

    DEFAULT_CSS = "RoundHeader { height: 2; }"

    def show(self, grid: RoundGrid) -> None:
        """Draw what the grid shows, over its columns."""
        view = grid.view
        if view is None or not len(view.seqs):
            self.update("", layout=False)
            return
        first, last = grid.rounds_shown
        seconds = durations(view)[first:last]
        known = seconds[np.isfinite(seconds)]
        top = nice_ceiling(float(known.max())) if len(known) else 1.0
        glyphs = "".join(
            GAP_GLYPH if level == GAP else BLOCKS[level]
            for level in levels(seconds, Scale(0.0, top)).tolist()
        )
        muted = theme_style(self.app, "muted")
        text = Text(no_wrap=True, overflow="crop")
        text.append(f" took, max {format_duration(top * NS_PER_S)}".ljust(LABEL), muted)
        text.append(glyphs + "\n", theme_style(self.app, "primary"))
        text.append(" operation".ljust(LABEL), muted)
        text.append(axis(view, first, last, grid.column), muted)
        text.append(f" {view.seqs[last - 1]}", muted)
        self.update(text, layout=False)
