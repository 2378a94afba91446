"""Which operations have completed; `state` alone does not show it.

Without timing, NCCL's entries stay "scheduled" until they are retired; gloo's for ever. pg_status
holds the last completed number of each group, but not which of the two numbers it is: gloo counts
all operations (op_id), NCCL writes the collective or the P2P number, whichever came last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from oncall.importers.flight_recorder.entries import Entries
from oncall.importers.flight_recorder.names import COALESCED
from oncall.importers.flight_recorder.rows import Array

_COUNTED = ("coll", "p2p", "all")


@dataclass(frozen=True)
class Status:
    """pg_status of one group: the last number enqueued and the last completed, -1 before any.

    `launched_kind` and `completed_kind` say which number each is: "coll", "p2p", "all" (both kinds
    counted together), "either" if its entries do not tell, or None if it has no entries.
    """

    launched: int
    completed: int
    launched_kind: str | None = None
    completed_kind: str | None = None

    @property
    def kind(self) -> str | None:
        """The kind that both numbers count; "either" if they do not count the same."""
        return self.launched_kind if self.launched_kind == self.completed_kind else "either"


def tell_kinds(entries: Entries, status: Mapping[int, Status]) -> dict[int, Status]:
    """The status of each group (by code) with what it counts, as far as the entries tell."""
    highest = np.zeros((2, len(entries.pairs)), dtype=np.int64)
    np.maximum.at(highest[0], entries.group, entries.collective_seq)
    np.maximum.at(highest[1], entries.group, entries.p2p_seq)
    of_gloo = np.array([call.backend == "gloo" for call in entries.calls])[entries.call]
    gloo = set(entries.group[of_gloo].tolist())
    kinds = {}
    for group, one in status.items():
        collectives, p2ps = highest[:, group].tolist()
        if group in gloo:
            kind = "coll" if p2ps == 0 and collectives >= one.launched else "all"
            kinds[group] = replace(one, launched_kind=kind, completed_kind=kind)
        else:
            launched = _which(one.launched, collectives, p2ps)
            done = _which(one.completed, collectives, p2ps) if one.completed > 0 else launched
            kinds[group] = replace(one, launched_kind=launched, completed_kind=done)
    return kinds


def _which(number: int, collectives: int, p2ps: int) -> str:
    """NCCL: a number that only one of the two sequences has reached belongs to that one."""
    if p2ps == 0 or p2ps < number <= collectives:
        return "coll"
    if collectives == 0 or collectives < number <= p2ps:
        return "p2p"
    return "either"


def completed(entries: Entries, status: Mapping[int, Status]) -> Array:
    """Whether each entry has completed: by its own word, or because its group got past it.

    A collective is done if its group completed its number: one group runs them in order. NCCL runs
    P2P operations with different peers side by side, so there the number proves nothing of an
    entry, unless it belongs to a batch (several entries with one number), which runs in order.
    """
    limit = np.full((len(_COUNTED), len(entries.pairs)), -1, dtype=np.int64)
    for group, one in status.items():
        if one.completed_kind in _COUNTED:
            limit[_COUNTED.index(one.completed_kind), group] = one.completed
    collective, p2p, everything = limit[:, entries.group]
    done: Array = (
        entries.finished
        | (~entries.p2p & (entries.collective_seq <= collective))
        | (entries.p2p & (entries.p2p_seq <= p2p) & entries.batched)
        | ((entries.op_id > 0) & (entries.op_id <= everything))
    )
    return done & ~entries.aborted


def never_launched(entries: Entries, status: Mapping[int, Status]) -> Array:
    """Collectives (n,) that were recorded, and that their group never launched: the events of such
    an entry were not recorded, so that it seems to be over."""
    limit = np.full(len(entries.pairs), np.iinfo(np.int64).max)
    for group, one in status.items():
        if one.launched_kind == "coll" and one.launched >= 0:
            limit[group] = one.launched
    unlaunched: Array = entries.held & ~entries.p2p & (entries.seq > limit[entries.group])
    return unlaunched


def close_batches(entries: Entries) -> Entries:
    """Join coalesced calls with the entry that ends them, the only one that is ever completed.

    PyTorch records each call of a batch and then one "coalesced" entry with the same number. P2P
    calls keep their peers and take its completion and duration; collectives become one entry,
    which carries their elements and, if they agree, their operation and element type.
    """
    ends = np.array([call.op == COALESCED for call in entries.calls])[entries.call]
    _, batch = np.unique(entries.key, return_inverse=True)
    entries = replace(entries, finished=entries.finished | _left_behind(entries, batch, ends))
    if not ends.any():
        return entries
    end_of = np.full(int(batch.max()) + 1, -1)
    end_of[batch[ends]] = np.flatnonzero(ends)
    calls = np.flatnonzero(~ends & (end_of[batch] >= 0))
    end = end_of[batch[calls]]
    state = {
        name: getattr(entries, name).copy()
        for name in (
            *("finished", "held", "aborted", "started_ns", "ended_ns", "seen_ns", "duration_ns"),
        )
    }
    for column in state.values():
        column[calls] = column[end]
    members = calls[~entries.p2p[calls]]
    joined = _carry(entries, members, end_of[batch[members]])
    drop = np.zeros(len(batch), dtype=bool)
    drop[members] = True
    drop[end[entries.p2p[calls]]] = True
    return replace(joined, **state).select(~drop)


def _left_behind(entries: Entries, batch: Array, ends: Array) -> Array:
    """P2P entries (n,) of batches whose closing entry was retired and, where only active entries
    are kept, is not here. Members of a batch are never retired themselves.

    Whether a lone entry is a batch of one, only the others show: where a batch of several has lost
    its closing entry, lone entries have too. A call is closed before the rank records anything
    else, so its newest entry shows nothing.
    """
    if not len(batch):
        return ends
    closed = np.bincount(batch, weights=ends) > 0
    several = np.bincount(batch) > 1
    newest = np.full(len(entries.pairs), -1, dtype=np.int64)
    np.maximum.at(newest, entries.group[ends & entries.p2p], entries.p2p_seq[ends & entries.p2p])
    open_calls = entries.p2p & ~ends & ~closed[batch]
    last = np.flatnonzero(np.diff(entries.dump, append=entries.dump[-1] + 1))
    followed = batch != batch[last][entries.dump]
    dropped = np.bincount(entries.dump, open_calls & several[batch] & followed)[entries.dump] > 0
    before = several[batch] | (entries.p2p_seq < newest[entries.group]) | (followed & dropped)
    left: Array = open_calls & before
    return left


def _carry(entries: Entries, members: Array, end: Array) -> Entries:
    """Let each ending entry carry what its collectives moved."""
    count, total, call, dtype = (
        column.copy() for column in (entries.count, entries.bytes, entries.call, entries.dtype)
    )
    for column in (count, total):
        moved = column[members]
        column[end] = 0
        np.add.at(column, end, np.maximum(moved, 0))
        column[end[moved < 0]] = -1
    for column, otherwise in ((call, call.copy()), (dtype, np.full_like(dtype, -1))):
        column[end] = column[members]
        differ = end[column[end] != column[members]]
        column[differ] = otherwise[differ]
    return replace(entries, count=count, bytes=total, call=call, dtype=dtype)
