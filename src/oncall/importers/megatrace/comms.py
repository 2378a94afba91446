"""Which communicator each Megatrace call belongs to, and its number there."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from oncall.importers.megatrace.groups import Lane, find_groups
from oncall.importers.megatrace.log import Array, Calls

_ONE_GROUP_CALL_NS = 250_000  # from one to the next; a host that waits in between takes longer

MaskedArray: TypeAlias = np.ma.MaskedArray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Lanes:
    """The calls of all ranks, by rank, lane, then time; every array (n,).

    A lane is what may be one communicator on one rank: collectives, or Send and Recv, of one
    groupHash, or of one stream where the log has none. `place` tells streams and hashes apart;
    `counting` is false if no opCount of the job ever rises; `of_streams`: it numbers the calls of
    a stream, from 1, whichever communicators they are of.
    """

    rank: Array
    at_ns: Array
    op_code: Array
    ops: tuple[str, ...]
    count: Array
    stream: Array
    op_count: Array
    hashed: Array
    comm: Array
    p2p: Array
    place: Array
    lane: Array
    counting: bool
    of_streams: bool

    def of(self, rank: int) -> slice:
        """Where the calls of a rank lie."""
        begin, end = np.searchsorted(self.rank, [rank, rank + 1]).tolist()
        return slice(begin, end)

    def slices(self) -> list[slice]:
        """Where each lane lies."""
        ends = (np.flatnonzero(np.diff(self.lane, append=-1)) + 1).tolist()
        return [slice(begin, end) for begin, end in zip([0, *ends], ends, strict=False)]


@dataclass(frozen=True)
class Communicators:
    """Communicator (NULL: unknown) and number of each call, and each communicator's ranks."""

    comm: MaskedArray
    seq: Array
    ranks: dict[int, list[int]]
    inferred: bool


def join(logs: Sequence[Calls]) -> Lanes:
    """All calls of all logs (at least one), each in its lane."""
    ops = tuple(sorted({name for log in logs for name in log.ops}))
    code = {name: i for i, name in enumerate(ops)}
    op_code = np.concatenate([np.array([code[n] for n in log.ops])[log.op_code] for log in logs])
    rank, at_ns, count, stream, op_count = (
        np.concatenate([getattr(log, name) for log in logs])
        for name in ("rank", "at_ns", "count", "stream", "op_count")
    )
    hashed = ~np.concatenate([np.ma.getmaskarray(log.comm) for log in logs])
    comm = np.concatenate([log.comm.data for log in logs])
    p2p = np.isin(op_code, [code[name] for name in ("Send", "Recv") if name in code])
    names, place = np.unique(np.where(hashed, comm, stream), return_inverse=True)
    place = hashed * len(names) + place
    key = (rank * 2 + p2p) * 2 * len(names) + place
    order = np.lexsort((at_ns, key))
    return Lanes(
        rank=rank[order],
        at_ns=at_ns[order],
        op_code=op_code[order],
        ops=ops,
        count=count[order],
        stream=stream[order],
        op_count=op_count[order],
        hashed=hashed[order],
        comm=comm[order],
        p2p=p2p[order],
        place=place[order],
        lane=np.unique(key[order], return_inverse=True)[1],
        # From NCCL 2.27 on it may stay 0 on a single node; then lines are counted instead.
        counting=bool((op_count > 0).any()),
        of_streams=all(log.counts_streams for log in logs),
    )


def assign(lanes: Lanes) -> Communicators:
    """Communicators by groupHash, else inferred where the calls make it plain."""
    comm: MaskedArray = np.ma.MaskedArray(lanes.comm.copy(), mask=~lanes.hashed)
    seq = _of_streams(lanes) if lanes.of_streams else lanes.op_count.copy()
    call = np.unique(lanes.count, return_inverse=True)[1] * len(lanes.ops) + lanes.op_code
    ranks: dict[int, list[int]] = {}
    candidates: list[tuple[Lane, slice]] = []
    for part in lanes.slices():
        rank, numbers = int(lanes.rank[part.start]), seq[part]
        counted = not lanes.counting or bool((numbers < 0).any())
        # A communicator of one rank launches nothing and leaves its opCount at 0.
        single = not counted and len(numbers) > 1 and not numbers.any()
        if counted or single:
            seq[part] = np.arange(len(numbers))
        if lanes.hashed[part.start]:
            ranks.setdefault(int(lanes.comm[part.start]), []).append(rank)
        elif lanes.p2p[part.start]:
            continue  # each rank counts Send and Recv on its own: nothing to compare
        elif single:
            own = _name([rank], int(lanes.stream[part.start]))
            ranks[own], comm[part] = [rank], own
        elif bool((np.diff(seq[part]) > 0).all()):
            candidates.append((Lane(rank, seq[part], call[part], lanes.at_ns[part]), part))
    groups = find_groups([lane for lane, _ in candidates])
    for name, members in _named([[candidates[i] for i in group] for group in groups]):
        ranks[name] = [lane.rank for lane, _ in members]
        for _, part in members:
            comm[part] = name
    return Communicators(
        comm, seq, {name: sorted(set(members)) for name, members in ranks.items()}, bool(groups)
    )


def group_calls(lanes: Lanes) -> MaskedArray:
    """A number for each group call of Sends and Recvs, which are launched together.

    They share an opCount where that counts launches; where it counts calls, they follow at once.
    """
    if not lanes.of_streams:
        return np.ma.MaskedArray(lanes.op_count, mask=~(lanes.p2p & (lanes.op_count >= 0)))
    apart = (np.diff(lanes.lane, prepend=-1) != 0) | (np.diff(lanes.op_count, prepend=-1) != 1)
    apart |= np.diff(lanes.at_ns, prepend=0) > _ONE_GROUP_CALL_NS
    return np.ma.MaskedArray(np.cumsum(apart), mask=~lanes.p2p)


def _of_streams(lanes: Lanes) -> Array:
    """Numbers on each communicator, from numbers on each stream: the same, less one, where the
    stream has no other; else lines are counted."""
    seq = lanes.op_count - 1
    _, shared = np.unique(np.stack([lanes.rank, lanes.stream]), axis=1, return_inverse=True)
    lanes_of = np.unique(np.stack([shared.ravel(), lanes.lane]), axis=1)[0]
    several = np.bincount(lanes_of)[shared.ravel()] > 1
    begins = np.flatnonzero(np.diff(lanes.lane, prepend=-1))
    counted = np.arange(len(seq)) - begins[lanes.lane]
    return np.where(several, counted, seq)


def holes(lanes: Lanes, rank: int) -> int | None:
    """Calls of `rank` that the ring lost, counted where opCount rises; None if it never does."""
    mine = lanes.of(rank)
    op_count, at_ns = lanes.op_count[mine], lanes.at_ns[mine]
    places = lanes.stream[mine] if lanes.of_streams else lanes.place[mine]
    lost, known = 0, False
    for place in np.unique(places):
        here = places == place
        numbers = op_count[here][np.argsort(at_ns[here], kind="stable")]
        # Several communicators on one stream count side by side, so nothing is known of them.
        if lanes.counting and numbers[0] >= 0 and bool((np.diff(numbers) >= 0).all()):
            known = True
            lost += int(numbers[-1]) + (not lanes.of_streams) - len(np.unique(numbers))
    return lost if known else None


def _named(
    groups: list[list[tuple[Lane, slice]]],
) -> list[tuple[int, list[tuple[Lane, slice]]]]:
    """A number for each inferred communicator; those of the same ranks in the order they began."""
    groups = sorted(groups, key=lambda group: min(int(lane.at_ns[0]) for lane, _ in group))
    named = []
    before: Counter[tuple[int, ...]] = Counter()
    for group in groups:
        ranks = tuple(sorted(lane.rank for lane, _ in group))
        named.append((_name(ranks, before[ranks]), group))
        before[ranks] += 1
    return named


def _name(ranks: Sequence[int], ordinal: int) -> int:
    """A communicator's number made from its members: the same whenever the log is read."""
    digest = hashlib.blake2b(f"{list(ranks)} {ordinal}".encode(), digest_size=8).digest()
    return int.from_bytes(digest)
