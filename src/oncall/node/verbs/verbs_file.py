"""Reads what a training process posts to its RDMA NICs (hooks/oncall_verbs.h)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from oncall.node.rings.file_header import FileHeader, Layout
from oncall.node.rings.ring_layout import c_struct, each
from oncall.node.rings.shared_file import Boards, SharedFileReader, only

MAGIC = int.from_bytes(b"O0VERBS1", "little")
LAYOUT_VERSION = 1


class QueuePairState(IntEnum):
    """The state of a queue pair."""

    UNUSED = 0
    READY = 1
    ERROR = 2
    DESTROYED = 3


HEADER = c_struct(
    ("magic", "u8"),
    *each("layout_version header_bytes queue_pair_slots queue_pair_bytes", "u4"),
    *each("request_slots request_bytes", "u4"),
    *each("queue_pairs_at requests_at", "u8"),
    *each("anchor_monotonic_ns anchor_realtime_ns", "i8"),
    *each("process_started_ns process_start_ticks pid parent_pid", "i8"),
    *each("rank world_size local_rank reserved", "i4"),
    *each("job node", "S128"),
    ("hook_version", "S32"),
    *each("closed loaded_by", "u4"),
    ("queue_pairs_made", "u8"),
    ("head", "u8", 128),
    ("dropped", "u8", 128),
    ("lost_queue_pairs", "u8"),
    ("tail", "u8", 128),
    size=4096,
)

QUEUE_PAIR = c_struct(
    *each("version state qpn peer_qpn", "u4"),
    ("peer_gid", "V16"),
    ("nic", "S32"),
    *each("port type timeout retry", "u1"),
    *each("peer_lid reserved", "u2"),
    *each("ready_ns closed_ns", "i8"),
    *each("number closed_at", "u8"),
    *each("most_outstanding reserved_too", "u4"),
    ("posted", "u8", 64),
    *each("posted_bytes writes sends reads other signaled receives", "u8"),
    ("completed", "u8", 64),
    *each("completed_bytes errors last_status", "u8"),
    *each("oldest_posted_ns last_completed_ns", "i8"),
    *each("read_bytes received", "u8"),
    size=256,
)

REQUEST = c_struct(
    ("stamp", "u8"),
    *each("posted_ns last_posted_ns completed_ns", "i8"),
    ("bytes", "u8"),
    *each("queue_pair requests number", "u4"),
    *each("opcode status", "u1"),
    ("reserved", "u2"),
    *each("outstanding reserved_too", "u4"),
    size=64,
)


@dataclass(frozen=True)
class VerbsHeader(FileHeader):
    """Who posts."""

    queue_pair_slots: int
    queue_pairs_at: int
    request_slots: int
    requests_at: int


class VerbsReader(SharedFileReader[VerbsHeader]):
    """One verbs file, open. Rows of `drain`: REQUEST."""

    header_kind = VerbsHeader
    layout = Layout(
        "verbs file", MAGIC, LAYOUT_VERSION, HEADER, {"queue_pair": QUEUE_PAIR, "request": REQUEST}
    )

    @property
    def lost_queue_pairs(self) -> int:
        """Queue pairs that found no free board."""
        return self._counter("lost_queue_pairs")

    def queue_pairs(self) -> Boards:
        """Every queue pair but those whose board was used again. Rows: QUEUE_PAIR."""
        used = min(self._header.queue_pair_slots, self._counter("queue_pairs_made"))
        start = self._header.queue_pairs_at
        boards = self._boards(QUEUE_PAIR, start, range(used), ["version"])
        return only(boards, boards.rows["state"] != QueuePairState.UNUSED)
