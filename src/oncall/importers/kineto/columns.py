"""Operations as columns: what a reading process hands back, and what the database takes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from oncall.evidence.columns import ColumnData, Words
from oncall.importers.flight_recorder.entries import Codes
from oncall.importers.kineto.operations import Operation
from oncall.importers.printable import printable

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
            "op": Words(op, [*map(printable, ops)]),
            "dtype": Words(
                np.where(nameless[dtype], np.int32(-1), dtype) if len(dtype) else dtype,
                [printable(str(name)) for name in dtypes],
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
