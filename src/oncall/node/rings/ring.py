"""Reads a training process's ring (hooks/oncall_ring.h) while the process writes it."""

from __future__ import annotations

from dataclasses import dataclass

from oncall.node.rings.file_header import FileHeader, Layout
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


@dataclass(frozen=True)
class RingHeader(FileHeader):
    """Who records."""

    local_rank: int | None
    gpu: int | None
    pci_bus: str
    nic: str
    framework: str
    nccl_version: str
    configuration: str
    parent_pid: int
    communicator_slots: int
    communicators_at: int
    transfer_slots: int
    transfers_at: int
    record_slots: int
    records_at: int


class RingReader(SharedFileReader[RingHeader]):
    """One ring, open. Rows of `drain`: RECORD."""

    header_kind = RingHeader
    layout = Layout(
        "ring",
        MAGIC,
        LAYOUT_VERSION,
        HEADER,
        {"communicator": COMMUNICATOR, "transfer": TRANSFER, "record": RECORD},
    )

    @property
    def lost(self) -> int:
        """Records dropped or never finished, and what the hooks could not track: operations,
        communicators and transfers that found no free board."""
        names = ("dropped", "lost_operations", "lost_communicators", "lost_transfers")
        return sum(self._counters(*names)) + self.torn

    @property
    def event_mask(self) -> int:
        """The profiler events that the plugin asks NCCL for at present."""
        return self._counter("event_mask_now")

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
