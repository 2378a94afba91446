"""What this node's ranks send and wait for, read from the boards in their rings.

The profiler plugin keeps the boards. A rank's channels to one peer in one operation are one step of
one flow.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oncall.core.errors import BadInput
from oncall.node.rings.living_files import LivingFiles
from oncall.node.rings.ring import RingReader
from oncall.node.rings.ring_layout import Wait


@dataclass(frozen=True)
class Flow:
    """From one rank of a communicator to another. Named alike on every node: `comm` is the
    communicator's identity, the same on all members, and ranks count in it."""

    comm: int
    src: int
    dst: int


@dataclass(frozen=True)
class InFlight:
    """A step of a flow that is sent from here. Times are CLOCK_MONOTONIC; `posted_ns`: since when
    all that goes on is on the wire and not acknowledged, None while a channel waits for its GPU or
    for the receiver. `starved`: every channel waits for its GPU, so there is nothing to send.
    `operation` counts in its process."""

    flow: Flow
    operation: int
    began_ns: int
    posted_ns: int | None
    starved: bool = False


@dataclass(frozen=True)
class Awaited:
    """A flow to here of which the receiver has given credit and nothing comes. `process` is whose
    queue pairs it comes by, as the names of its files begin."""

    flow: Flow
    process: str
    began_ns: int


@dataclass
class Seen:
    """The result of one look: of each flow that is sent, its newest operation; and the flows that
    are waited for."""

    sending: list[InFlight] = field(default_factory=list)
    awaited: list[Awaited] = field(default_factory=list)


class Boards:
    """The rings of living processes, open. Used by one thread."""

    def __init__(self, folder: Path) -> None:
        self._rings = LivingFiles(folder, ".ring", RingReader)
        self._members: dict[Path, dict[int, tuple[int, int]]] = {}

    def __len__(self) -> int:
        return len(self._rings)

    def read(self, now_ns: int) -> Seen:
        """Everything that is in flight."""
        is_time = self._rings.look(now_ns)
        if is_time:
            self._members.clear()
        seen = Seen()
        for ring in self._rings:
            try:
                if ring.path not in self._members:
                    self._members[ring.path] = _members(ring)
                boards = ring.transfers().rows
            except (BadInput, OSError):  # source `rings` says why
                self._rings.let_go(ring)
                continue
            members = self._members[ring.path]
            seen.sending += _sending(boards, members)
            seen.awaited += _awaited(boards, members, process_of(ring.path))
        return seen

    def close(self) -> None:
        self._rings.close()


def process_of(path: Path) -> str:
    """The process of a file: the hooks begin all file names with its number."""
    return path.name.partition("-")[0]


def _members(ring: RingReader) -> dict[int, tuple[int, int]]:
    """Slot -> (identity, own rank) of communicators. A slot that changes hands within a second is
    taken for the one before."""
    boards = ring.communicators()
    named = boards.rows["identity"] != 0
    rows = boards.rows[named]
    ends = zip(rows["identity"].tolist(), rows["rank"].tolist(), strict=True)
    return dict(zip(boards.slots[named].tolist(), ends, strict=True))


def _ends(
    boards: NDArray[np.void], members: dict[int, tuple[int, int]]
) -> Iterator[tuple[int, int, int, NDArray[np.void]]]:
    """(communicator, own rank, peer, boards of its newest operation) of each end."""
    ends, place = np.unique(boards[["communicator", "peer"]], return_inverse=True)
    for number, end in enumerate(ends):
        slot, peer = int(end["communicator"]), int(end["peer"])
        if slot in members:
            mine = boards[place == number]
            yield *members[slot], peer, mine[mine["operation"] == mine["operation"].max()]


def _sending(boards: NDArray[np.void], members: dict[int, tuple[int, int]]) -> Iterator[InFlight]:
    for comm, rank, peer, mine in _ends(boards[boards["is_send"] != 0], members):
        is_posted = mine["wait"] == Wait.SEND_WIRE
        yield InFlight(
            Flow(comm, rank, peer),
            int(mine["operation"][0]),
            int(mine["started_ns"].min()),
            int(mine["since_ns"].max()) if is_posted.all() else None,
            bool((mine["wait"] == Wait.SEND_GPU).all()),
        )


def _awaited(
    boards: NDArray[Any], members: dict[int, tuple[int, int]], process: str
) -> Iterator[Awaited]:
    for comm, rank, peer, mine in _ends(boards[boards["is_send"] == 0], members):
        waits = mine[mine["wait"] == Wait.RECV_WIRE]
        if len(waits):
            yield Awaited(Flow(comm, peer, rank), process, int(waits["started_ns"].min()))
