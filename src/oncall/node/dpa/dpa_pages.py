"""What the poller of a NIC's measurement writes: frames, most of which hold a page of epochs.

The layouts are those of dpa/frames.h and dpa/mailbox.h. A pipe loses nothing, so bytes that make no
sense mean that another program or version writes them: they are refused, and no attempt is made to
find the next frame.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from oncall.core.errors import BadInput

_FRAME = struct.Struct("<IHHIIqq")
_FRAME_MAGIC = 0x61704430
_PAGE = struct.Struct("<IHHIIIIIIQQQQQQQQQQ")
_PAGE_MAGIC = 0x65676150
_VERSION = 1
_MOST_BYTES = 16 * 2**20  # of a frame: no mailbox is that large

BATCH_EPOCHS = 32
BATCH = np.dtype(
    [
        ("first_epoch", "<u8"),
        ("qpn", "<u4"),
        ("vhca", "<u2"),
        ("flags", "<u2"),
        ("units", "<u2", BATCH_EPOCHS),
    ]
)
UNDERCOUNT, CLIPPED, ESTIMATED = 1, 2, 4  # flags

Batches: TypeAlias = NDArray[np.void]


class FrameKind(IntEnum):
    """What follows a frame's header."""

    PAGE = 1
    PROBLEM = 2


@dataclass(frozen=True)
class Frame:
    """One exchange of the poller with its NIC; Unix times, ns."""

    kind: FrameKind
    before_ns: int
    after_ns: int
    payload: bytes


@dataclass(frozen=True)
class Page:
    """What a NIC reported at once: `batches` as BATCH (n,); counts are since `boot`."""

    number: int
    more: bool
    epoch_ns: int
    unit_bytes: int
    boot: int
    now_ns: int  # NIC's time, or a little less; 0: nothing was sent yet
    events: int
    lost: int  # events not counted, counters and serial numbers with a gap
    estimated: int
    flows: int
    batches: Batches


def split_frames(data: bytes, source: str) -> tuple[list[Frame], bytes]:
    """The whole frames at the head of `data`, and what is left. Raises BadInput for bytes that
    are no frame of this version."""
    frames = []
    at = 0
    while len(data) - at >= _FRAME.size:
        magic, version, kind, size, _, before_ns, after_ns = _FRAME.unpack_from(data, at)
        if magic != _FRAME_MAGIC or size > _MOST_BYTES:
            raise BadInput(source, "its output has no valid frames: is it the poller of dpa/?")
        _check_version(version, source)
        if kind not in FrameKind.__members__.values():
            raise BadInput(source, f"a frame of unknown kind {kind}")
        end = at + _FRAME.size + size
        if end > len(data):
            break
        payload = data[at + _FRAME.size : end]
        frames.append(Frame(FrameKind(kind), before_ns, after_ns, payload))
        at = end
    return frames, data[at:]


def read_page(payload: bytes, source: str) -> Page:
    """A page as the NIC wrote it. Raises BadInput if it is none, or is damaged."""
    if len(payload) < _PAGE.size:
        raise BadInput(source, f"a page of {len(payload)} bytes is cut off")
    magic, version, header_bytes, size, number, count, more, *fields = _PAGE.unpack_from(payload)
    if magic != _PAGE_MAGIC:
        raise BadInput(source, "the NIC's answer is not a page")
    _check_version(version, source)
    if header_bytes != _PAGE.size or size != len(payload):
        raise BadInput(source, f"a page of {size} bytes came with {len(payload)}")
    if size != _PAGE.size + count * BATCH.itemsize:
        raise BadInput(source, f"a page of {size} bytes cannot hold {count} batches")
    epoch_ns, unit_bytes, boot, now_ns, events, *losses, estimated, strays, flows = fields
    if not epoch_ns or not unit_bytes:
        raise BadInput(source, "a page whose epoch length or byte unit is zero")
    batches: NDArray[Any] = np.frombuffer(payload, BATCH, count, _PAGE.size)
    lost = sum(losses) + strays
    return Page(
        *(number, bool(more), epoch_ns, unit_bytes, boot, now_ns, events, lost, estimated, flows),
        batches,
    )


def _check_version(version: int, source: str) -> None:
    if version != _VERSION:
        raise BadInput(
            source, f"speaks version {version}, this collector reads {_VERSION}: rebuild it"
        )
