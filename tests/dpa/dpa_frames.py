"""Frames, pages and batches byte by byte, as a poller writes them."""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray

from oncall.node.dpa.dpa_pages import BATCH

_PAGE = (
    *("magic", "version", "header_bytes", "bytes", "number", "batches", "more", "epoch_ns"),
    *("unit_bytes", "boot", "now_ns", "events", "without_flow", "without_batch", "gaps", "clipped"),
    *("estimated", "strays", "flows"),
)


def batch(vhca: int, qpn: int, first_epoch: int, *units: int, flags: int = 0) -> NDArray[np.void]:
    row = np.zeros(1, BATCH)
    row["vhca"], row["qpn"], row["first_epoch"], row["flags"] = vhca, qpn, first_epoch, flags
    row["units"][0, : len(units)] = units
    return row


def page(*batches: NDArray[np.void], **reported: int) -> bytes:
    """A page of these batches; `reported` replaces what its header says."""
    rows = b"".join(one.tobytes() for one in batches)
    header = dict.fromkeys(_PAGE, 0) | {
        "magic": 0x65676150,
        "version": 1,
        "header_bytes": 112,
        "bytes": 112 + len(rows),
        "number": 1,
        "batches": len(batches),
        "epoch_ns": 32_000,
        "unit_bytes": 32,
        "boot": 1,
        "now_ns": 10**10,
    }
    assert reported.keys() <= header.keys()
    return struct.pack("<IHHIIIIIIQQQQQQQQQQ", *(header | reported).values()) + rows


def frame(payload: bytes, kind: int = 1, version: int = 1, after_ns: int = 0) -> bytes:
    header = (0x61704430, version, kind, len(payload), 0, after_ns, after_ns)
    return struct.pack("<IHHIIqq", *header) + payload
