"""Reads a training process's ring (hooks/oncall_ring.h) while the process writes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from oncall.core.errors import BadInput
from oncall.node.rings.ring_layout import (
    COMMUNICATOR,
    HEADER,
    LAYOUT_VERSION,
    MAGIC,
    RECORD,
    TRANSFER,
    CommunicatorState,
)
from oncall.node.rings.shared_file import Boards, SharedFileReader, only

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
    check_sizes(
        place,
        fields,
        header_bytes=HEADER,
        communicator_bytes=COMMUNICATOR,
        transfer_bytes=TRANSFER,
        record_bytes=RECORD,
    )
    header = RingHeader(**read_fields(RingHeader, fields))
    check_places(
        place,
        HEADER.itemsize,
        [
            Part("communicators", header.communicators_at, header.communicator_slots, COMMUNICATOR),
            Part("transfers", header.transfers_at, header.transfer_slots, TRANSFER),
            Part("records", header.records_at, header.record_slots, RECORD),
        ],
        file_bytes,
    )
    check_rank(place, header.rank, header.world_size)
    return header


def _text(field: np.bytes_) -> str:
    """A job's own words: what cannot be printed could steer a terminal, and no console could ask
    for a job by such a name."""
    text = bytes(field).split(b"\0", 1)[0].decode("utf-8", "replace")
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)


def _known(number: np.int32) -> int | None:
    return None if number < 0 else int(number)


_BY_TYPE: dict[str, Callable[[Any], Any]] = {"str": _text, "int | None": _known, "int": int}


def read_fields(layout: type, fields: np.void) -> dict[str, Any]:
    """The values of the annotated attributes of `layout`, from the fields of the same names."""
    return {name: _BY_TYPE[kind](fields[name]) for name, kind in layout.__annotations__.items()}


def check_sizes(place: str, fields: np.void, **ours: np.dtype[np.void]) -> None:
    """Whether the file's structs have the sizes that we know. Raises BadInput."""
    for name, kind in ours.items():
        if fields[name] != kind.itemsize:
            raise BadInput(place, f"damaged: {name} is {fields[name]}, not {kind.itemsize}")


@dataclass(frozen=True)
class Part:
    """Slots of one kind, in a row from byte `start` on."""

    name: str
    start: int
    slots: int
    kind: np.dtype[np.void]


_MOST = {
    "communicators": 1 << 16,  # records name them in 16 bits
    "transfers": 1 << 16,  # sixteen times those of our hooks; all are read at once
    "records": 1 << 24,
    "queue pairs": 1 << 16,
    "requests": 1 << 24,
}


def check_places(place: str, end: int, parts: Sequence[Part], file_bytes: int) -> None:
    """Whether the parts lie one after the other, from `end` on, and within the file; the last is
    a ring. Raises BadInput."""
    for part in parts:
        if not 0 < part.slots <= _MOST[part.name]:
            raise BadInput(place, f"damaged: {part.slots} slots of {part.name}")
        if part.start < end or part.start % part.kind.itemsize:
            raise BadInput(place, f"damaged: {part.name} at byte {part.start}")
        end = part.start + part.slots * part.kind.itemsize
        if end > file_bytes:
            raise BadInput(
                place, f"truncated: {part.name} end at byte {end}, the file has {file_bytes} bytes"
            )
    ring = parts[-1]
    if ring.slots & (ring.slots - 1):
        raise BadInput(place, f"damaged: {ring.slots} {ring.name} is not a power of two")


def check_rank(place: str, rank: int | None, world_size: int | None) -> None:
    """A rank that no such job has would blame, or hide, whoever it names. Raises BadInput."""
    ranks = world_size or _MOST_RANKS
    if ranks > _MOST_RANKS:
        raise BadInput(place, f"forged or damaged: a world of {ranks} ranks")
    if rank is not None and rank >= ranks:
        raise BadInput(
            place,
            f"forged or damaged, or RANK and WORLD_SIZE come from different launchers: "
            f"rank {rank} of a world of {ranks}",
        )


class RingReader(SharedFileReader[RingHeader]):
    """One ring, open. Rows of `drain`: RECORD."""

    header_type = HEADER
    record_type = RECORD
    read_header = staticmethod(read_header)

    def _places(self) -> tuple[int, int]:
        return self._header.record_slots, self._header.records_at

    @property
    def lost_operations(self) -> int:
        """Operations that the hooks could not track."""
        return self._counter("lost_operations")

    @property
    def lost_communicators(self) -> int:
        """Communicators that found no free board."""
        return self._counter("lost_communicators")

    @property
    def lost_transfers(self) -> int:
        """Transfers that found no free board."""
        return self._counter("lost_transfers")

    @property
    def event_mask(self) -> int:
        """The profiler events that the plugin asks NCCL for at present."""
        return self._counter("event_mask_now")

    def set_event_mask(self, mask: int) -> None:
        """Ask for these profiler events; the hooks follow at their next look."""
        self._set("event_mask", mask)

    def communicators(self) -> Boards:
        """Every communicator but those whose board was used again. Rows: COMMUNICATOR."""
        used = min(self._header.communicator_slots, self._counter("communicators_made"))
        versions = ["version", "collectives.version", "point_to_point.version"]
        boards = self._boards(COMMUNICATOR, self._header.communicators_at, range(used), versions)
        return only(boards, boards.rows["state"] != CommunicatorState.UNUSED)

    def transfers(self) -> Boards:
        """The proxy operations in flight. Rows: TRANSFER."""
        start = self._header.transfers_at
        found = self._read(TRANSFER, start, self._header.transfer_slots)["operation"].nonzero()[0]
        used = range(found[0], found[-1] + 1) if len(found) else range(0)
        boards = self._boards(TRANSFER, start, used, ["version"])
        return only(boards, boards.rows["operation"] != 0)
