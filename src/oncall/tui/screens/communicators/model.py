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


@dataclass(frozen=True)
class Round:
    """One round. Durations of the members that completed it, ns; -1 if there are none."""

    seq: int
    op: str
    absent: tuple[int, ...]  # ranks that have not entered
    waiting: tuple[int, ...]
    done: int
    unknown: int
    shortest_ns: int
    median_ns: int
    longest_ns: int
    longest: int  # the rank of it, -1
    payload_bytes: int | None


def round_at(view: CommunicatorView, column: int) -> Round:
    """The outcome of one round."""
    state, took = view.state[:, column], view.duration_ns[:, column]
    timed = took >= 0
    known = np.sort(took[timed])
    slowest = int(view.ranks[int(np.where(timed, took, -1).argmax())]) if len(known) else -1
    return Round(
        seq=int(view.seqs[column]),
        op=view.ops[column],
        absent=tuple(view.ranks[state == NOT_ENTERED].tolist()),
        waiting=tuple(view.ranks[state == WAITING].tolist()),
        done=int((state == DONE).sum()),
        unknown=int((state == UNKNOWN).sum()),
        shortest_ns=int(known[0]) if len(known) else -1,
        median_ns=int(known[len(known) // 2]) if len(known) else -1,
        longest_ns=int(known[-1]) if len(known) else -1,
        longest=slowest,
        payload_bytes=view.round_bytes[column] if column < len(view.round_bytes) else None,
    )


def round_lines(one: Round, members: int, remark: str = "") -> tuple[str, ...]:
    """A round in words: which members have entered, and how long it took at which rate."""
    counted = [f"{one.done:,} of {members:,} done"]
    if one.waiting:
        counted.append(f"{ranks_phrase(one.waiting)} waiting")
    if one.absent:
        counted.append(f"{ranks_phrase(one.absent)} not entered")
    if one.unknown:
        counted.append(f"{one.unknown:,} unknown")
    payload = f" of {format_bytes(one.payload_bytes)}" if one.payload_bytes else ""
    lines = [f"{one.op} {one.seq}{payload}{remark}: {' · '.join(counted)}"]
    if one.longest_ns >= 0:
        rate = ""
        if one.payload_bytes and one.longest_ns:
            rate = f" · {format_rate(one.payload_bytes * NS_PER_S / one.longest_ns)} per member"
        lines.append(
            f"took {format_duration(one.shortest_ns)} to {format_duration(one.longest_ns)} "
            f"(rank {one.longest}), median {format_duration(one.median_ns)}{rate}"
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
    found = np.flatnonzero(snapshot.ranks.rank == rank)
    if not len(found):
        return 0, -1
    return int(snapshot.ranks.comm[found[0]]), int(snapshot.ranks.seq[found[0]])


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
