"""Which ranks make the same calls: replicas do, each in communicators of its own."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from itertools import pairwise

import numpy as np

from oncall.analysis.tasks.schedules import Array

_ODD = np.uint64(0x9E3779B97F4A7C15)  # spreads what differs in few bits over all of them


def group_order(columns: dict[str, Array], goes_on_ns: int) -> Array:
    """The calls, those of one group call with its Sends first, as a rank sends what it has before
    it receives more. Within a group call they have no order: a rank and its replica may record them
    in different orders. Recorders that count group calls in each communicator give equal numbers to
    calls that are not of one group call: those are not made directly one after the other."""
    n = len(columns["rank"])
    order = np.arange(n)
    group = columns["group_id"]
    together = (np.diff(group) == 0) & (group[1:] >= 0) & (np.diff(columns["rank"]) == 0)
    together &= np.diff(columns["called_ns"]) < goes_on_ns
    mine = np.flatnonzero(np.append(False, together) | np.append(together, False))
    run = np.cumsum(np.append(True, ~together))[mine]
    keys = (columns["peer"][mine], columns["seq"][mine], ~columns["send"][mine], run)
    order[mine] = mine[np.lexsort(keys)]
    return order


def likenesses(
    columns: dict[str, Array], begins: Array, named: Mapping[int, int | None]
) -> list[bytes]:
    """What distinguishes the calls of each rank, apart from times and communicators' names."""
    n = len(columns["rank"])
    number = np.cumsum(np.isin(np.arange(n), begins)) - 1
    # A communicator by where the rank first calls in it, a group call by its distance to the first.
    keys = number * (int(columns["place"].max(initial=0)) + 1) + columns["place"]
    _, first, place = np.unique(keys, return_index=True, return_inverse=True)
    group, peer = columns["group_id"].astype(np.int64), columns["peer"].astype(np.int64)
    uses = {place: -1 if use is None else use for place, use in named.items()}
    used = np.array([uses.get(int(place), -1) for place in columns["place"][first]], dtype=np.int64)
    mixed = columns["what"].astype(np.uint64)
    for values in (
        first[place] - begins[number],
        used[place],
        np.where(group >= 0, group - group[begins][number], np.iinfo(np.int64).min),
        np.where(peer >= 0, peer - columns["rank"], np.iinfo(np.int64).min),
        columns["seq"],
        columns["p2p"] * 4 + columns["peer_recorded"] * 2 + (columns["ended_ns"] >= 0),
    ):
        mixed = (mixed ^ np.asarray(values).astype(np.int64).view(np.uint64)) * _ODD
        mixed ^= mixed >> np.uint64(29)
    bounds = pairwise([*begins.tolist(), n])
    return [blake2b(mixed[begin:end].tobytes()).digest() for begin, end in bounds]
