"""What a ring says of itself, and whether a file can be read as a ring at all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from oncall.collect.ring_layout import (
    COMMUNICATOR,
    HEADER,
    LAYOUT_VERSION,
    MAGIC,
    RECORD,
    TRANSFER,
)
from oncall.errors import BadInput

_MOST_COMMUNICATORS = 1 << 16  # records name them in 16 bits
_MOST_TRANSFERS = 1 << 20
_MOST_RECORDS = 1 << 24
_MOST_RANKS = 1 << 20


@dataclass(frozen=True)
class RingHeader:
    """Who records, and where things lie in the file. Unknown numbers of a launcher are None.

    `pid` is the process's own number of itself, which in a container is not the host's. Instants
    are Unix time in ns; a monotonic time of a record plus `realtime_offset_ns` is one too.
    """

    job: str
    node: str
    rank: int | None
    world_size: int | None
    local_rank: int | None
    gpu: int | None
    pci_bus: str
    nic: str
    framework: str
    nccl_version: str
    hook_version: str
    configuration: str
    pid: int
    parent_pid: int
    process_started_ns: int
    process_start_ticks: int
    anchor_monotonic_ns: int
    anchor_realtime_ns: int
    communicator_slots: int
    communicators_at: int
    transfer_slots: int
    transfers_at: int
    record_slots: int
    records_at: int

    @property
    def realtime_offset_ns(self) -> int:
        """Unix time less CLOCK_MONOTONIC, as the process saw them when it opened its ring."""
        return self.anchor_realtime_ns - self.anchor_monotonic_ns


def read_header(place: str, head: bytes, file_bytes: int) -> RingHeader:
    """The header in the first bytes of a file of `file_bytes`.

    Raises BadInput if the file is no ring, is one of another layout, or cannot be whole.
    """
    if len(head) < HEADER.itemsize:
        raise BadInput(place, f"not a ring, or a truncated one: only {file_bytes} bytes")
    fields = np.frombuffer(head, HEADER, 1)[0]
    if fields["magic"] != MAGIC:
        raise BadInput(place, "not a ring of oncall's hooks")
    if fields["layout_version"] != LAYOUT_VERSION:
        raise BadInput(
            place,
            f"a ring of layout {fields['layout_version']}, and this oncall reads layout "
            f"{LAYOUT_VERSION}: the job's hooks and the collector are of different versions",
        )
    _check_sizes(place, fields)
    values: dict[str, Any] = {name: read(fields[name]) for name, read in _READ.items()}
    header = RingHeader(**values)
    _check_places(place, header, file_bytes)
    _check_rank(place, header)
    return header


def _text(field: np.bytes_) -> str:
    """A job's own words: what cannot be printed could steer a terminal, and no console could ask
    for a job by such a name."""
    told = bytes(field).split(b"\0", 1)[0].decode("utf-8", "replace")
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in told)


def _known(number: np.int32) -> int | None:
    return None if number < 0 else int(number)


_BY_TYPE: dict[str, Callable[[Any], Any]] = {"str": _text, "int | None": _known, "int": int}
_READ = {name: _BY_TYPE[kind] for name, kind in RingHeader.__annotations__.items()}


def _check_sizes(place: str, fields: np.void) -> None:
    ours = {
        "header_bytes": HEADER.itemsize,
        "communicator_bytes": COMMUNICATOR.itemsize,
        "transfer_bytes": TRANSFER.itemsize,
        "record_bytes": RECORD.itemsize,
    }
    for name, expected in ours.items():
        if fields[name] != expected:
            raise BadInput(place, f"damaged: {name} is {fields[name]}, not {expected}")


def _check_places(place: str, header: RingHeader, file_bytes: int) -> None:
    parts = [
        ("communicators", header.communicators_at, header.communicator_slots, COMMUNICATOR),
        ("transfers", header.transfers_at, header.transfer_slots, TRANSFER),
        ("records", header.records_at, header.record_slots, RECORD),
    ]
    most = {
        "communicators": _MOST_COMMUNICATORS,
        "transfers": _MOST_TRANSFERS,
        "records": _MOST_RECORDS,
    }
    end = HEADER.itemsize
    for name, start, slots, kind in parts:
        if not 0 < slots <= most[name]:
            raise BadInput(place, f"damaged: {slots} slots of {name}")
        if start < end or start % kind.itemsize:
            raise BadInput(place, f"damaged: {name} at byte {start}")
        end = start + slots * kind.itemsize
        if end > file_bytes:
            raise BadInput(
                place, f"truncated: {name} end at byte {end}, the file has {file_bytes} bytes"
            )
    if header.record_slots & (header.record_slots - 1):
        raise BadInput(place, f"damaged: {header.record_slots} records is no power of two")


def _check_rank(place: str, header: RingHeader) -> None:
    """A rank that no such job has would blame, or hide, whoever it names."""
    ranks = header.world_size or _MOST_RANKS
    if ranks > _MOST_RANKS:
        raise BadInput(place, f"forged or damaged: a world of {ranks} ranks")
    if header.rank is not None and header.rank >= ranks:
        raise BadInput(
            place,
            f"forged or damaged, or RANK and WORLD_SIZE are of different launchers: "
            f"rank {header.rank} of a world of {ranks}",
        )
