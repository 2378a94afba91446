"""The structs of hooks/oncall_ring.h as numpy dtypes, byte for byte (a test asks the C compiler).

Times are CLOCK_MONOTONIC nanoseconds unless their name says otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import numpy as np
from numpy.typing import DTypeLike

MAGIC = int.from_bytes(b"\0ONCALL1", "little")
LAYOUT_VERSION = 1


class RecordKind(IntEnum):
    """What a record tells."""

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
    """Where a communicator's life stands."""

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


_Field = tuple[str, DTypeLike] | tuple[str, DTypeLike, int]  # name, type[, alignment in bytes]


def _struct(*fields: _Field, size: int) -> np.dtype[np.void]:
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


def _each(names: str, kind: DTypeLike) -> Sequence[tuple[str, DTypeLike]]:
    return [(name, kind) for name in names.split()]


HEADER = _struct(
    ("magic", "u8"),
    *_each("layout_version header_bytes communicator_slots communicator_bytes", "u4"),
    *_each("transfer_slots transfer_bytes record_slots record_bytes", "u4"),
    *_each("records_at transfers_at communicators_at", "u8"),
    *_each("anchor_monotonic_ns anchor_realtime_ns", "i8"),
    *_each("process_started_ns process_start_ticks pid parent_pid", "i8"),
    *_each("rank world_size local_rank gpu", "i4"),
    *_each("job node", "S128"),
    *_each("pci_bus nic framework nccl_version hook_version", "S32"),
    ("configuration", "S256"),
    *_each("closed reserved", "u4"),
    ("communicators_made", "u8"),
    ("head", "u8", 128),
    ("dropped", "u8", 128),
    *_each("lost_operations lost_communicators lost_transfers", "u8"),
    ("tail", "u8", 128),
    ("event_mask", "u4", 128),
    ("event_mask_now", "u4"),
    size=4096,
)

PROGRESS = _struct(
    *_each("entered enqueued ended", "u8"),
    ("entered_ns", "i8"),
    *_each("operation count", "u8"),
    ("peer", "i4"),
    *_each("op dtype", "u1"),
    ("reserved", "u2"),
    *_each("version reserved_too", "u4"),
    size=64,
)

COMMUNICATOR = _struct(
    *_each("version state", "u4"),
    *_each("identity pointer parent", "u8"),
    *_each("created_ns closed_ns", "i8"),
    *_each("rank size device async_error", "i4"),
    *_each("nodes identity_is_hash", "u4"),
    ("name", "S64"),
    *_each("number closed_at", "u8"),
    ("reserved", "V64"),
    ("collectives", PROGRESS, 64),
    ("point_to_point", PROGRESS, 64),
    size=512,
)

TRANSFER = _struct(
    ("version", "u4"),
    ("communicator", "u2"),
    *_each("channel is_send", "u1"),
    ("operation", "u8"),
    ("peer", "i4"),
    *_each("steps steps_done wait", "u4"),
    *_each("since_ns started_ns", "i8"),
    ("bytes", "u8"),
    ("waited_ns", ("i8", (len(Wait),))),
    ("last_step_ns", "i8"),
    size=128,
)

_RECORD: Sequence[tuple[str, DTypeLike]] = [
    ("stamp", "u8"),
    ("time_ns", "i8"),
    ("operation", "u8"),
    *_each("kind communicator", "u2"),
    ("group", "u4"),
]

RECORD = _struct(*_RECORD, ("payload", "V32"), size=64)

# A record whose kind is known is read by viewing it as the kind's own dtype:
#     entered = records[records["kind"] == RecordKind.ENTERED].view(ENTERED)
ENTERED = _struct(
    *_RECORD,
    *_each("sequence count stream", "u8"),
    ("peer", "i4"),
    *_each("op dtype", "u1"),
    ("captured", "u2"),
    size=64,
)
ENQUEUED = _struct(*_RECORD, ("result", "i4"), size=64)
DESCRIBED = _struct(
    *_RECORD,
    ("algorithm", "S12"),
    ("protocol", "S8"),
    *_each("channels warps", "u2"),
    ("plan_count", "u8"),
    size=64,
)
ENDED = _struct(
    *_RECORD,
    ("gpu_duration_ns", "i8"),
    *_each("sends recvs", "u4"),
    ("bytes", "u8"),
    *_each("channels reserved", "u4"),
    size=64,
)
STARTED = ENDED
TRANSFER_OVER = _struct(
    *_RECORD,
    ("bytes", "u8"),
    ("peer", "i4"),
    *_each("channel is_send", "u1"),
    ("reserved", "u2"),
    *_each("first_wait_us peer_wait_us last_wait_us span_us", "u4"),
    size=64,
)
GROUP = _struct(*_RECORD, *_each("operations reserved", "u4"), ("started_ns", "i8"), size=64)
