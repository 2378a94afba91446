"""The structs of hooks/oncall_ring.h as numpy dtypes, byte for byte (a test asks the C compiler),
and what their numbers stand for.

Times are CLOCK_MONOTONIC nanoseconds unless their name says otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, Final

import numpy as np
from numpy.typing import DTypeLike

_Field = tuple[str, DTypeLike] | tuple[str, DTypeLike, int]  # name, type[, alignment in bytes]


def c_struct(*fields: _Field, size: int) -> np.dtype[np.void]:
    """A dtype laid out as C lays out a struct of `size` bytes."""
    names, formats, offsets = [], [], []
    at = 0
    for name, written, *wanted in fields:
        kind = np.dtype(written)
        alignment = wanted[0] if wanted else kind.base.alignment
        at = -(-at // alignment) * alignment
        names.append(name)
        formats.append(kind)
        offsets.append(at)
        at += kind.itemsize
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": size})


def each(names: str, kind: DTypeLike) -> Sequence[tuple[str, DTypeLike]]:
    """Fields of one type, their names between blanks."""
    return [(name, kind) for name in names.split()]


MAGIC = int.from_bytes(b"\0ONCALL1", "little")
LAYOUT_VERSION = 1


class RecordKind(IntEnum):
    """What a record contains."""

    ENTERED = 1
    ENQUEUED = 2
    DESCRIBED = 3
    STARTED = 4
    ENDED = 5
    TRANSFER = 6
    GROUP = 7


class Operation(IntEnum):
    """What was called."""

    ALL_REDUCE = 1
    ALL_GATHER = 2
    REDUCE_SCATTER = 3
    BROADCAST = 4
    REDUCE = 5
    ALL_TO_ALL = 6
    GATHER = 7
    SCATTER = 8
    SEND = 9
    RECV = 10
    PUT_SIGNAL = 11
    WAIT_SIGNAL = 12
    SIGNAL = 13


class CommunicatorState(IntEnum):
    """The state of a communicator."""

    UNUSED = 0
    INITIALISING = 1
    RUNNING = 2
    FINALISED = 3
    DESTROYED = 4
    ABORTED = 5
    FAILED = 6


class Wait(IntEnum):
    """What a transfer waits for, in the order of NCCL's proxy step."""

    NONE = 0
    SEND_GPU = 1
    SEND_PEER = 2
    SEND_WIRE = 3
    RECV_WIRE = 4
    RECV_FLUSH = 5
    RECV_GPU = 6


HEADER = c_struct(
    ("magic", "u8"),
    *each("layout_version header_bytes communicator_slots communicator_bytes", "u4"),
    *each("transfer_slots transfer_bytes record_slots record_bytes", "u4"),
    *each("records_at transfers_at communicators_at", "u8"),
    *each("anchor_monotonic_ns anchor_realtime_ns", "i8"),
    *each("process_started_ns process_start_ticks pid parent_pid", "i8"),
    *each("rank world_size local_rank gpu", "i4"),
    *each("job node", "S128"),
    *each("pci_bus nic framework nccl_version hook_version", "S32"),
    ("configuration", "S256"),
    *each("closed reserved", "u4"),
    ("communicators_made", "u8"),
    ("head", "u8", 128),
    ("dropped", "u8", 128),
    *each("lost_operations lost_communicators lost_transfers", "u8"),
    ("tail", "u8", 128),
    ("reserved_mask", "u4", 128),
    ("event_mask_now", "u4"),
    size=4096,
)

PROGRESS = c_struct(
    *each("entered enqueued ended", "u8"),
    ("entered_ns", "i8"),
    *each("operation count", "u8"),
    ("peer", "i4"),
    *each("op dtype", "u1"),
    ("reserved", "u2"),
    *each("version reserved_too", "u4"),
    size=64,
)

COMMUNICATOR = c_struct(
    *each("version state", "u4"),
    *each("identity pointer parent", "u8"),
    *each("created_ns closed_ns", "i8"),
    *each("rank size device async_error", "i4"),
    *each("nodes identity_is_hash", "u4"),
    ("name", "S64"),
    *each("number closed_at", "u8"),
    ("reserved", "V64"),
    ("collectives", PROGRESS, 64),
    ("point_to_point", PROGRESS, 64),
    size=512,
)

TRANSFER = c_struct(
    ("version", "u4"),
    ("communicator", "u2"),
    *each("channel is_send", "u1"),
    ("operation", "u8"),
    ("peer", "i4"),
    *each("steps steps_done wait", "u4"),
    *each("since_ns started_ns", "i8"),
    ("bytes", "u8"),
    ("waited_ns", ("i8", (len(Wait),))),
    ("last_step_ns", "i8"),
    size=128,
)

_RECORD: Sequence[tuple[str, DTypeLike]] = [
    ("stamp", "u8"),
    ("time_ns", "i8"),
    ("operation", "u8"),
    *each("kind communicator", "u2"),
    ("group", "u4"),
]

RECORD = c_struct(*_RECORD, ("payload", "V32"), size=64)

# A record whose kind is known is read by viewing it as the kind's own dtype:
#     entered = records[records["kind"] == RecordKind.ENTERED].view(ENTERED)
ENTERED = c_struct(
    *_RECORD,
    *each("sequence count stream", "u8"),
    ("peer", "i4"),
    *each("op dtype", "u1"),
    ("captured", "u2"),
    size=64,
)
ENQUEUED = c_struct(*_RECORD, ("result", "i4"), size=64)
DESCRIBED = c_struct(
    *_RECORD,
    ("algorithm", "S12"),
    ("protocol", "S8"),
    *each("channels warps", "u2"),
    ("plan_count", "u8"),
    size=64,
)
ENDED = c_struct(
    *_RECORD,
    ("gpu_duration_ns", "i8"),
    *each("sends recvs", "u4"),
    ("bytes", "u8"),
    *each("channels reserved", "u4"),
    size=64,
)
STARTED = ENDED
TRANSFER_OVER = c_struct(
    *_RECORD,
    ("bytes", "u8"),
    ("peer", "i4"),
    *each("channel is_send", "u1"),
    ("reserved", "u2"),
    *each("first_wait_us peer_wait_us last_wait_us span_us", "u4"),
    size=64,
)
GROUP = c_struct(*_RECORD, *each("operations reserved", "u4"), ("started_ns", "i8"), size=64)


# What the numbers stand for.


# By number; 0 is none. The evidence schema's names: ALL_REDUCE is AllReduce.
OPERATIONS: Final = ("", *(op.name.title().replace("_", "") for op in Operation))
ROOTED: Final = tuple(Operation[name] for name in ("BROADCAST", "REDUCE", "GATHER", "SCATTER"))
PAIRED: Final = (Operation.SEND, Operation.RECV)
POINT_TO_POINT: Final = tuple(op for op in Operation if op >= Operation.SEND)
KINDS: Final = ("coll", "p2p")  # by whether it is point-to-point

# ncclDataType_t by number, and how many bytes an element has.
_DTYPES: Final = {
    "int8": 1,
    "uint8": 1,
    "int32": 4,
    "uint32": 4,
    "int64": 8,
    "uint64": 8,
    "float16": 2,
    "float32": 4,
    "float64": 8,
    "bfloat16": 2,
    "float8e4m3": 1,
    "float8e5m2": 1,
}
DTYPES: Final = tuple(_DTYPES)
DTYPE_BYTES: Final[np.ndarray[Any, Any]] = np.array([*_DTYPES.values()], dtype=np.int64)

NCCL_SUCCESS: Final = 0
NCCL_IN_PROGRESS: Final = 7
NCCL_RESULTS: Final = {
    1: "ncclUnhandledCudaError",
    2: "ncclSystemError",
    3: "ncclInternalError",
    4: "ncclInvalidArgument",
    5: "ncclInvalidUsage",
    6: "ncclRemoteError",
}

WAITS: Final = ("", *(wait.name.lower() for wait in Wait if wait))
DIRECTIONS: Final = ("recv", "send")  # by is_send
