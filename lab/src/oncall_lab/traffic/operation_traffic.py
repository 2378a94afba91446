"""What a node would find in its epochs of each operation and peer, taken from the truth."""

from __future__ import annotations

from typing import Any

import numpy as np

from oncall.evidence.incident import Words
from oncall_lab.arrays import Bools, Floats, Ints
from oncall_lab.recording import EPOCH_NS
from oncall_lab.traffic.epochs import as_seen, spread
from oncall_lab.traffic.operations import Calls
from oncall_lab.traffic.play import Played
from oncall_lab.traffic.scenario import TrafficScenario
from oncall_lab.traffic.slices import Slices


def operation_traffic(
    scenario: TrafficScenario, played: Played, slices: Slices, offset_ns: Floats
) -> dict[str, Any]:
    """Columns of `op_traffic`, but for `node`. `slices` are those of `played` with what was counted
    on top; offset_ns (ranks,): of each rank's clock."""
    begin_ns, end_ns = as_seen(scenario, slices)
    seen = np.isfinite(end_ns) & (slices.bytes >= 1)
    slices, begin_ns, end_ns = slices.where(seen), begin_ns[seen], end_ns[seen]
    world, epoch_ns, calls = played.cluster.world_size, scenario.epoch_ns, played.calls
    shown = begin_ns + offset_ns[slices.sender], end_ns + offset_ns[slices.sender]

    pairs, index = np.unique(
        _pair(slices.operation, slices.sender, slices.peer, world), return_inverse=True
    )
    _, number, counted = spread(index, slices.bytes, *shown, epoch_ns)
    of, begin, active = _runs(index, slices, shown, epoch_ns)
    operation, rank, peer = pairs // world // world, pairs // world % world, pairs % world

    ranks, at_rank = np.unique(slices.operation * world + slices.sender, return_inverse=True)
    _, _, rank_active = _runs(at_rank, slices, shown, epoch_ns)
    rank_active = rank_active[np.searchsorted(ranks, pairs // world)]

    due = played.expected
    known = _pair(due.operation, due.sender, due.peer, world)
    order = np.argsort(known)
    expected = due.bytes[order[np.searchsorted(known[order], pairs)]]
    sent = np.bincount(index, played.slices.bytes[seen])
    ended = EPOCH_NS + (number[begin + active - 1] + 1) * epoch_ns
    call = calls_of(calls, operation, rank, peer, world)
    is_p2p = calls.peer[call] >= 0
    return {
        "job": scenario.job,
        "comm": calls.comm[call],
        "seq": calls.seq[call],
        "kind": Words(is_p2p.astype(np.int32), ["coll", "p2p"]),
        "rank": rank,
        "peer": peer,
        "op": words(calls.op[call]),
        "group_id": np.ma.MaskedArray(calls.group[call], mask=~is_p2p),
        "algo": words(calls.algo[call], empty=True),
        "started_ns": EPOCH_NS + number[begin] * epoch_ns,
        "ended_ns": np.ma.MaskedArray(ended, mask=sent < expected - 1),
        "active_ns": active * epoch_ns,
        "rank_active_ns": rank_active * epoch_ns,
        "bytes": np.add.reduceat(counted, begin) if len(of) else counted,
        "expected_bytes": np.rint(expected).astype(np.int64),
        "epoch_ns": epoch_ns,
        "source": scenario.source,
        "undercount": False,
    }


def words(values: np.ndarray[Any, Any], empty: bool = False) -> Words:
    """Strings by dictionary; "" is NULL if `empty`."""
    vocabulary, found = np.unique(values, return_inverse=True)
    codes = found.astype(np.int32)
    if empty:
        codes[values == ""] = -1
    return Words(codes, [str(word) for word in vocabulary])


def _pair(operation: Ints, sender: Ints, peer: Ints, world: int) -> Ints:
    return (operation * world + sender) * world + peer


def _runs(
    index: Ints, slices: Slices, shown: tuple[Floats, Floats], epoch_ns: int
) -> tuple[Ints, Ints, Ints]:
    """Of each index that has any: itself, its first epoch's row, and how many it has."""
    of, _, _ = spread(index, slices.bytes, *shown, epoch_ns)
    return np.unique(of, return_index=True, return_counts=True)


def calls_of(
    calls: Calls, operation: Ints, rank: Ints, peer: Ints, world: int, sends: Bools | None = None
) -> Ints:
    """The row of each rank's call that sent to `peer`, or received from it where it does not send:
    its collective, or its Send or Recv; -1 where it never called, as what is sent to a rank that
    is stuck arrives all the same."""
    known_recv = calls.op == "Recv"
    known = np.flatnonzero(calls.operation >= 0)

    def key(operation: Ints, rank: Ints, peer: Ints, receives: Bools) -> Ints:
        return ((operation * world + rank) * (world + 1) + peer + 1) * 2 + receives

    keys = key(calls.operation[known], calls.rank[known], calls.peer[known], known_recv[known])
    order = np.argsort(keys)
    single = np.isin(operation, calls.operation[known][calls.peer[known] >= 0])
    receives = single & ~sends if sends is not None else np.zeros(len(rank), dtype=np.bool_)
    wanted = key(operation, rank, np.where(single, peer, -1), receives)
    place = np.minimum(np.searchsorted(keys[order], wanted), len(keys) - 1)
    return np.where(keys[order][place] == wanted, known[order[place]], -1)
