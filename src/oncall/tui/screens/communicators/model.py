"""Which communicators to list, and the members of one against its last rounds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from oncall.core.units import NS_PER_S, format_bytes, format_duration, format_rate
from oncall.tui.drawing.states import STATES
from oncall.views.ranks.communicators import CommunicatorView
from oncall.views.snapshot import CommunicatorSummary, RankState, Snapshot
from oncall.views.words import ranks_phrase

_DIGITS = re.compile(r"([0-9]+)")
NOT_ENTERED, WAITING, DONE, UNKNOWN = range(4)
# What a member does in a round, in the words of what ranks do.
CELLS = np.array([RankState.LATE, RankState.WAITING, RankState.RUNNING, RankState.UNKNOWN])


# ------------------------------------------------------------------- the list


def chosen(
    communicators: Sequence[CommunicatorSummary], text: str = "", faults_only: bool = False
) -> tuple[CommunicatorSummary, ...]:
    """Communicators whose label, role or hash contains every word: the worst first, in the
    session's order; if no rank waits, by label. `faults_only` keeps those that a member waits in
    and another has not entered."""
    words = text.lower().split()
    found = [
        one
        for one in communicators
        if all(word in f"{one.label} {one.role} {one.comm:#x}".lower() for word in words)
        and (not faults_only or (one.waiting and one.behind))
    ]
    waiting = [one for one in found if one.waiting]
    calm = [one for one in found if not one.waiting]
    return (*waiting, *sorted(calm, key=lambda one: (-one.size, _natural(one.label))))


def _natural(label: str) -> list[tuple[int, str]]:
    """A key that puts pp_9 before pp_10."""
    return [(int(part) if part.isdecimal() else -1, part) for part in _DIGITS.split(label)]


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


# ---------------------------------------------------- members against rounds


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
        lines.append(
            f"took {format_duration(shortest)} to {format_duration(longest)} "
            f"(rank {view.ranks[took.argmax()]}), median {format_duration(median)}{rate}"
        )
    return tuple(lines)


def durations(view: CommunicatorView) -> npt.NDArray[np.float64]:
    """(rounds,) seconds of each round's longest member; NaN where none is done."""
    if not view.duration_ns.size:
        return np.full(len(view.seqs), np.nan)
    longest = view.duration_ns.max(axis=0)
    return np.where(longest >= 0, longest / NS_PER_S, np.nan)


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
    state = int(snapshot.ranks.state[held].max()) if held.any() else int(RankState.UNKNOWN)
    return f"{row.label}: {STATES[state].says}"


# -------------------------------------------------------------------- columns


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
