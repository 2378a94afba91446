"""The calls of one trace joined with their kernels: one row an operation."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from oncall.evidence.columns import ColumnData, Words
from oncall.importers.codes import Codes
from oncall.importers.flight_recorder.names import COALESCED, DTYPE_BYTES
from oncall.importers.kineto.trace import Call, Kernel, Trace


@dataclass(frozen=True)
class Operation:
    """One operation of a rank: its first call, what all its calls moved, and when it ran."""

    call: Call
    op: str
    seq: int
    count: int | None
    bytes: int | None
    started_ns: int | None
    ended_ns: int | None
    stream: int | None
    group_id: int | None
    done: bool | None

    @property
    def on_device(self) -> bool:
        """Whether its times are a kernel's; gloo's are those of the host."""
        return self.stream is not None

    @property
    def took_ns(self) -> int | None:
        if self.started_ns is None or self.ended_ns is None:
            return None
        return self.ended_ns - self.started_ns


@dataclass(frozen=True)
class Joined:
    """The operations of a trace in the order of their calls, and what the joining showed."""

    operations: list[Operation]
    counted: bool = False  # collectives carry no numbers: they were counted
    by_launch: int = 0  # kernels joined by when and where they were launched
    lost: int = 0  # kernels of no call
    left_out: int = 0  # operations of which the trace cannot know whether they were over


def join(trace: Trace) -> Joined:
    """Operations of a trace.

    Calls of one number on one group are one operation: a coalesced one, or a barrier with the
    all-reduce inside it. Sends and receives are numbered in the rank's own order, as their numbers
    mean different things in different releases of PyTorch.
    """
    calls = sorted(trace.calls, key=lambda call: (call.at_ns, -call.until_ns))
    kernels, by_launch, lost = _kernels_of(calls, trace.kernels, trace.launches)
    counted = any(call.seq is None for call in calls if not call.p2p)
    parts: dict[tuple[str, bool, int], list[int]] = defaultdict(list)
    numbers: dict[tuple[str, bool], int] = defaultdict(int)
    for index, call in enumerate(calls):
        lane = call.group, call.p2p
        numbers[lane] += 1
        numbered = not call.p2p and not counted and call.seq is not None
        parts[*lane, call.seq if numbered and call.seq is not None else numbers[lane]].append(index)
    operations = [
        _operation([calls[i] for i in part], seq, [k for i in part for k in kernels.get(i, ())])
        for (_, _, seq), part in parts.items()
    ]
    operations.sort(key=lambda one: one.call.at_ns)
    kept = _settled(operations, trace)
    return Joined(kept, counted, by_launch, lost, len(operations) - len(kept))


def _settled(operations: Sequence[Operation], trace: Trace) -> list[Operation]:
    """The operations of which it is known that they are over.

    NCCL runs those of one group in order: what precedes one that ran has run. Behind the last one a
    trace that was cut off knows nothing, and a call that it does not see end is no hang.
    """
    if trace.synchronised:
        return [replace(one, done=True) for one in operations]
    if not trace.kernels:
        return list(operations)
    lanes = [(one.call.group, one.call.p2p) for one in operations]
    ran = zip(lanes, operations, strict=True)
    last = {lane: one.call.at_ns for lane, one in ran if one.ended_ns is not None}
    return [
        replace(one, done=True)
        for lane, one in zip(lanes, operations, strict=True)
        if one.call.at_ns <= last.get(lane, -1)
    ]


def _operation(calls: Sequence[Call], seq: int, kernels: Sequence[Kernel]) -> Operation:
    first = calls[0]
    moving = [first, *(call for call in calls[1:] if call.until_ns > first.until_ns)]
    op = first.op if len({call.op for call in moving}) == 1 else COALESCED
    counts = [call.elements for call in moving if call.elements is not None]
    width = DTYPE_BYTES.get(first.dtype or "")
    count = sum(counts) if counts and op != "Barrier" else 0 if op == "Barrier" else None
    shared = kernels[0].correlation if len(calls) == 1 and first.p2p and kernels else None
    return Operation(
        call=first,
        op=op,
        seq=seq,
        count=count,
        bytes=count * width if count is not None and width is not None else None,
        started_ns=min((kernel.started_ns for kernel in kernels), default=None),
        ended_ns=max((kernel.ended_ns for kernel in kernels), default=None),
        stream=kernels[0].stream if kernels else None,
        group_id=shared,
        done=None,
    )


# -------------------------------------------------------------------- kernels


def _kernels_of(
    calls: Sequence[Call], kernels: Iterable[Kernel], launches: array[int]
) -> tuple[Mapping[int, list[Kernel]], int, int]:
    """Kernels by the index of their call; how many were joined by their launch, and not at all."""
    by_id = {call.external_id: index for index, call in enumerate(calls)}
    joined: dict[int, list[Kernel]] = defaultdict(list)
    unlinked = []
    for kernel in kernels:
        index = by_id.get(kernel.external_id or 0)
        if index is None:
            unlinked.append(kernel)
        else:
            joined[index].append(kernel)
    placed = _by_launch(calls, unlinked, launches, joined)
    return joined, placed, len(unlinked) - placed


def _by_launch(
    calls: Sequence[Call],
    kernels: Sequence[Kernel],
    launches: array[int],
    joined: dict[int, list[Kernel]],
) -> int:
    """Give kernels without a link to the calls before their launch on the same thread.

    A group call (batched sends and receives) launches one kernel after all its calls: it is of
    every call on their group since the last one that has a kernel. Returns how many found theirs.
    """
    if not kernels:
        return 0
    launched = _launches_of(kernels, launches)
    by_thread: dict[int, list[int]] = defaultdict(list)
    for index, call in enumerate(calls):
        by_thread[call.thread].append(index)
    placed = 0
    for kernel in sorted(kernels, key=lambda one: launched.get(one.correlation or -1, (0, 0))[1]):
        thread, at_ns = launched.get(kernel.correlation or -1, (0, 0))
        mine = by_thread.get(thread, [])
        last = bisect_right(mine, at_ns, key=lambda index: calls[index].at_ns) - 1
        found: list[int] = []
        while last >= 0 and mine[last] not in joined:
            if found and calls[mine[last]].group != calls[found[0]].group:
                break
            found.append(mine[last])
            last -= 1
        for index in found:
            joined[index].append(kernel)
        placed += bool(found)
    return placed


def _launches_of(kernels: Sequence[Kernel], launches: array[int]) -> dict[int, tuple[int, int]]:
    """Thread and instant of the launch of each kernel, by correlation."""
    wanted = np.array([one.correlation for one in kernels if one.correlation is not None])
    columns = np.frombuffer(launches, dtype=np.int64).reshape(-1, 3)
    mine = columns[np.isin(columns[:, 0], wanted)].tolist()
    return {correlation: (thread, at_ns) for correlation, thread, at_ns in mine}


# Operations as columns: what a reading process hands back, and what the database takes.

Array: TypeAlias = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Columns:
    """Operations (n,) of one trace in the order of their calls.

    `lane` codes index `lanes`: the rank's name for a group, and whether these are its sends and
    receives. `seq` counts on its lane. `values` are columns of the table `ops` as they are.
    """

    lanes: list[tuple[str, bool]]
    lane: Array
    seq: Array
    values: dict[str, ColumnData]

    def __len__(self) -> int:
        return len(self.seq)


def columns_of(operations: Sequence[Operation]) -> Columns:
    """The same operations as columns."""
    lanes, ops, dtypes = Codes(), Codes(), Codes()
    lane = lanes.of((it.call.group, it.call.p2p) for it in operations)
    op = ops.of(it.op for it in operations)
    dtype = dtypes.of(it.call.dtype for it in operations)
    nameless = np.array([name is None for name in dtypes], dtype=bool)
    p2p = np.array([it.call.p2p for it in operations], dtype=np.int32)
    return Columns(
        lanes=list(lanes),
        lane=lane,
        seq=np.array([it.seq for it in operations], dtype=np.int64),
        values={
            "kind": Words(p2p, ("coll", "p2p")),
            "op": Words(op, list(ops)),
            "dtype": Words(
                np.where(nameless[dtype], np.int32(-1), dtype) if len(dtype) else dtype,
                [str(name) for name in dtypes],
            ),
            "count": _known(it.count for it in operations),
            "bytes": _known(it.bytes for it in operations),
            "peer": _known(it.call.peer for it in operations),
            "stream": _known(it.stream for it in operations),
            "group_id": _known(it.group_id for it in operations),
            "enqueued_ns": _known(it.call.at_ns for it in operations),
            "started_ns": _known(it.started_ns if it.on_device else None for it in operations),
            "ended_ns": _known(it.ended_ns for it in operations),
            "duration_ns": _known(it.took_ns for it in operations),
            "done": _known((it.done for it in operations), np.bool_),
        },
    )


def _known(values: Iterable[int | None], dtype: type[np.generic] = np.int64) -> Array:
    """The values (n,), None masked."""
    listed = list(values)
    mask = [value is None for value in listed]
    return np.ma.MaskedArray(np.array([value or 0 for value in listed], dtype=dtype), mask=mask)
