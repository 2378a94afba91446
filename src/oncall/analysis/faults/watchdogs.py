"""Who waits where, from the watchdog's lines alone: each rank counted once."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from oncall.analysis.faults.lines import Attempt, Row
from oncall.core.nodeset import named_ranks

_ROOTED = {"BROADCAST", "REDUCE", "_BROADCAST_OOP", "_REDUCE_OOP", "SCATTER", "GATHER"}
_PAIRED = {"SEND", "RECV", "COALESCED", "UNKNOWN", "gloo recv", "gloo send"}
_SYMMETRIC = {"ALLREDUCE", "_ALLGATHER_BASE", "_REDUCE_SCATTER_BASE", "BROADCAST", "REDUCE"}
_GATHERS = {"_ALLGATHER_BASE", "ALLGATHER"}
_SCATTERS = {"_REDUCE_SCATTER_BASE", "REDUCE_SCATTER"}
_WHOLE = ("default_pg",)
_MOST_NAMED = 3  # numbers of operations in a sentence
_ENOUGH = 128  # ranks show the stride between members of a group
_MOST_RANKS = 1 << 20  # as in the bounds of evidence: more is a damaged line


@dataclass
class Waiting:
    """One rank that timed out in an operation of a process group."""

    rank: int
    first: Row
    status: Row | None = None

    @property
    def seq(self) -> int | None:
        seq = self.first["seq"]
        return int(seq) if seq is not None else None

    @property
    def enqueued(self) -> int | None:
        """None, too, where the count contradicts the operation that timed out."""
        enqueued = self.status["enqueued"] if self.status is not None else None
        return int(enqueued) if enqueued is not None and enqueued >= (self.seq or 0) else None

    @property
    def began_ns(self) -> int | None:
        at_ns: int | None = self.first["at_ns"]
        return at_ns - (self.first["waited_ns"] or 0) if at_ns is not None else None


@dataclass
class Stuck:
    """A process group that hung, and what is known of its ranks.

    `dumped` are ranks that did not time out in it and whose counters another rank's timeout made
    them print; `size` is None where nothing states it, and `least` what it is then at least.
    """

    group: str | None
    whole: bool
    waiting: dict[int, Waiting]
    dumped: Mapping[int, int]
    size: int | None
    everywhere: frozenset[int] = field(default_factory=frozenset)
    least: int = 0

    @property
    def elsewhere(self) -> frozenset[int]:
        """Ranks that wait in other groups: who holds them up there explains why they are late."""
        return self.everywhere - self.waiting.keys()

    @property
    def last(self) -> Waiting:
        """One that waits in the highest-numbered operation."""
        return max(self.waiting.values(), key=lambda one: (one.seq or 0, -one.rank))

    @property
    def op(self) -> str:
        return str(self.last.first["op"])


def stuck_group(attempt: Attempt, few: float) -> Stuck | None:
    """The process group where the hang began, or None without a timeout. `few`: as in `absent`."""
    timeouts = _of_ranks([row for row in attempt.reports if row["kind"] == "timeout"])
    statuses = [row for row in attempt.reports if row["kind"] == "status"]
    named = {row["process_group"] for row in (*statuses, *timeouts) if row["process_group"]}
    only = next(iter(named)) if len(named) == 1 else None
    groups: dict[str | None, dict[int, Waiting]] = defaultdict(dict)
    for row in timeouts:
        if row["rank"] is None:
            continue
        status = _status(row, statuses)
        group = row["process_group"] or (status["process_group"] if status else None) or only
        groups[group].setdefault(row["rank"], Waiting(row["rank"], row, status))
    # A status line alone says as much, where the timeout itself was cut away.
    known = {rank for waiting in groups.values() for rank in waiting}
    for row in statuses:
        if row["rank"] is not None and row["rank"] not in known:
            groups[row["process_group"]].setdefault(row["rank"], Waiting(row["rank"], row, row))
    if not groups:
        return None
    groups = _siblings_apart(groups)
    everywhere = frozenset(rank for each in groups.values() for rank in each)
    dumped = {
        row["rank"]: row["enqueued"]
        for row in attempt.reports
        if row["kind"] == "remote_dump" and row["rank"] is not None and row["enqueued"] is not None
    }
    return _where_it_begins(
        [
            _stuck(name, waiting, attempt, dumped, everywhere, alone=len(groups) == 1)
            for name, waiting in groups.items()
        ],
        few,
    )


def unnamed_groups(attempt: Attempt) -> str:
    """That several groups hang, where lines name none: a rank waits in two operations at a time."""
    statuses = [row for row in attempt.reports if row["kind"] == "status"]
    numbers: dict[Any, set[int]] = defaultdict(set)
    for row in attempt.reports:
        named = row["process_group"] or any(
            (one["rank"], one["seq"]) == (row["rank"], row["seq"]) for one in statuses
        )
        if row["kind"] == "timeout" and not named and row["seq"] is not None:
            numbers[row["rank"]].add(row["seq"])
    rank, seqs = max(numbers.items(), key=lambda pair: len(pair[1]), default=(None, set()))
    if rank is None or len(seqs) < 2:
        return ""
    said = ", ".join(f"{seq:,}" for seq in sorted(seqs)[:_MOST_NAMED])
    return f"rank {rank} waits in operations {said} at once: of several groups, none is named"


def _stuck(
    group: str | None,
    waiting: dict[int, Waiting],
    attempt: Attempt,
    dumped: Mapping[int, int],
    everywhere: frozenset[int],
    *,
    alone: bool,
) -> Stuck:
    whole = alone and (group is None or group == "0" or "(" not in group)
    whole = whole or any(name in (group or "") for name in _WHOLE)
    size = attempt.world if whole and attempt.world is not None else _size(waiting)
    least = min(attempt.least, _MOST_RANKS) if whole else 0
    return Stuck(group, whole, waiting, dumped if whole else {}, size, everywhere, least)


def _where_it_begins(groups: Sequence[Stuck], few: float) -> Stuck:
    """Who lacks a rank that waits in another group waits for what that group waits for. The first
    group from which this leads to one that lacks a rank which waits nowhere."""
    in_time = sorted(groups, key=lambda one: _began(one.waiting))
    ends = [_followed(one, in_time, few) for one in in_time]
    return next((one for one in ends if _lacks(one, few)), ends[0])


def _followed(group: Stuck, groups: Sequence[Stuck], few: float) -> Stuck:
    left = [one for one in groups if one is not group]
    while not _lacks(group, few):
        held = group.elsewhere & (frozenset(_absent_members(group)) | _late(group))
        after = next((one for one in left if held & one.waiting.keys()), None)
        if after is None:
            break
        group, left = after, [one for one in left if one is not after]
    return group


def _lacks(group: Stuck, few: float) -> bool:
    return bool(behind(group)[0] or absent(group, few))


def _siblings_apart(
    groups: Mapping[str | None, dict[int, Waiting]],
) -> dict[str | None, dict[int, Waiting]]:
    """The groups of one mesh dimension may share a name. Two ranks of one place are in two groups:
    ranks are then members of those where places follow in one stride."""
    apart: dict[str | None, dict[int, Waiting]] = {}
    for name, waiting in groups.items():
        places = {rank: one.first["comm_rank"] for rank, one in waiting.items()}
        known = {rank: place for rank, place in places.items() if place is not None}
        if len(set(known.values())) == len(known) or len(known) < len(places):
            apart[name] = waiting
            continue
        few = sorted(known)[:_ENOUGH]
        strides = {
            (rank - other) // (known[rank] - known[other])
            for rank in few
            for other in few
            if known[rank] > known[other] and rank > other
        } or {1}
        firsts = [{rank: rank - at * stride for rank, at in known.items()} for stride in strides]
        fewest = min(firsts, key=lambda first: len(set(first.values())))
        for first in sorted(set(fewest.values())):
            mine = {rank: waiting[rank] for rank in waiting if fewest[rank] == first}
            apart[f"{name}, of rank {min(mine)}"] = mine
    return apart


def _of_ranks(timeouts: Sequence[Row]) -> list[Row]:
    """With global ranks. A copy without prefix, as `what():` prints, names a place in a group: the
    rank, unless other lines show that ranks of groups differ from global ones."""
    if any(row["rank"] not in (None, row["comm_rank"]) for row in timeouts):
        return [row for row in timeouts if row["rank"] is not None]
    return [{**row, "rank": row["comm_rank"]} if row["rank"] is None else row for row in timeouts]


def _status(timeout: Row, statuses: Sequence[Row]) -> Row | None:
    mine = [row for row in statuses if row["rank"] == timeout["rank"]]
    same = [row for row in mine if row["seq"] == timeout["seq"]]
    return next(iter(same or mine), None)


def _began(waiting: Mapping[int, Waiting]) -> tuple[int, int]:
    began = [one.began_ns for one in waiting.values() if one.began_ns is not None]
    return (min(began) if began else 0, -len(waiting))


def _size(waiting: Mapping[int, Waiting]) -> int | None:
    """The group's size by what a gather brings together, or a scatter takes apart."""
    for one in waiting.values():
        op, into, out = (one.first[name] for name in ("op", "elements_in", "elements_out"))
        large, small = (out, into) if op in _GATHERS else (into, out)
        if op in _GATHERS | _SCATTERS and large and small and large % small == 0 and large > small:
            size = int(large // small)
            return size if size <= _MOST_RANKS else None
    return None


def mismatched(stuck: Stuck) -> tuple[list[int], str]:
    """Ranks whose call differs from the others' of the same number, and how. Of two ranks it is
    both; of larger sides of one size nobody."""
    by_seq: dict[Any, dict[int, tuple[Any, ...]]] = defaultdict(dict)
    for rank, one in stuck.waiting.items():
        op = one.first["op"]
        if op in _PAIRED or op is None:
            continue
        sizes = (one.first["elements_in"], one.first["elements_out"]) if op in _SYMMETRIC else ()
        by_seq[one.seq][rank] = (op, *sizes)
    for seq, calls in by_seq.items():
        kinds = Counter(calls.values())
        if len(kinds) < 2:
            continue
        (common, most), *others = kinds.most_common()
        tie = any(count == most for _, count in others)
        ranks = sorted(rank for rank, call in calls.items() if tie or call != common)
        said = " against ".join(
            f"{_call(call)} on {named_ranks(rank for rank, one in calls.items() if one == call)}"
            for call, _ in kinds.most_common(2)
        )
        return [] if tie and most > 1 else ranks, f"operation {seq}: {said}"
    return [], ""


def _call(call: tuple[Any, ...]) -> str:
    op, *sizes = call
    return f"{op} of {sizes[0]:,} elements" if sizes and sizes[0] is not None else str(op)


def behind(stuck: Stuck) -> tuple[list[int], str]:
    """Ranks that have called fewer operations than the others, and how that shows."""
    seqs = {rank: one.seq for rank, one in stuck.waiting.items() if one.seq is not None}
    last = max(seqs.values(), default=None)
    late = sorted(_late(stuck) - stuck.elsewhere)
    if late and len(late) <= len(stuck.waiting) + len(stuck.dumped) - len(late):
        counts = sorted({stuck.dumped[rank] for rank in late})
        return late, f"{_numbers(counts)} enqueued, the others {last} or more"
    if last is not None and min(seqs.values()) < last and stuck.op not in _ROOTED | _PAIRED:
        low = sorted(rank for rank, seq in seqs.items() if seq < last)
        if 2 * len(low) <= len(seqs):
            return low, f"still in operation {_numbers(sorted({seqs[rank] for rank in low}))}"
    counts_of = {
        rank: one.enqueued
        for rank, one in stuck.waiting.items()
        if one.enqueued is not None and one.seq == last
    }
    kinds = Counter(counts_of.values())
    if len(kinds) == 2 and len(counts_of) > 2:
        low_count, high_count = sorted(kinds)
        if kinds[low_count] == 1:
            rank = next(rank for rank, count in counts_of.items() if count == low_count)
            return [rank], f"{low_count} enqueued, the others {high_count}"
    return [], ""


def _late(stuck: Stuck) -> frozenset[int]:
    """Ranks that had called fewer operations when another's timeout made them print their count."""
    last = max((one.seq for one in stuck.waiting.values() if one.seq is not None), default=0)
    return frozenset(rank for rank, enqueued in stuck.dumped.items() if enqueued < last)


def absent(stuck: Stuck, few: float) -> list[int]:
    """Ranks that printed no timeout although the group's others did: at most the share `few`, or
    one; more may only be cut away. Where the size is unknown, a gap below the highest rank."""
    seen = set(stuck.waiting) | set(stuck.everywhere)
    arrived = {rank for rank, count in stuck.dumped.items() if count >= (stuck.last.seq or 0)}
    if stuck.whole:
        size = stuck.size or (stuck.least if len(seen) > 2 else 0)
        missing = sorted(set(range(size)) - seen - arrived)
    else:
        missing = [rank for rank in _absent_members(stuck) if rank not in stuck.everywhere]
        size = stuck.size or 0
    return missing if 0 < len(missing) <= max(1, few * size) else []


def _absent_members(stuck: Stuck) -> list[int]:
    """Global ranks of the members that did not print, where the others' ranks are in one stride; in
    a group of unknown size those below its highest place."""
    places = {
        one.first["comm_rank"]: rank
        for rank, one in stuck.waiting.items()
        if one.first["comm_rank"] is not None
    }
    if len(places) < (2 if stuck.size else 3):
        return []
    (low, first), *_, (high, last) = sorted(places.items())
    size = stuck.size or high + 1
    stride, rest = divmod(last - first, high - low)
    start = first - low * stride
    if rest or any(rank != start + place * stride for place, rank in places.items()):
        return []
    return [start + place * stride for place in range(size) if place not in places]


def _numbers(numbers: Sequence[Any]) -> str:
    return " or ".join(f"{number:,}" if number is not None else "?" for number in numbers[:3])
