"""What this node's ranks send right now, and since when nothing of it went out.

From the boards of their rings, which the profiler plugin keeps: nothing is consumed, so the source
`rings` misses nothing. A rank's channels to one peer in one operation are one step of one flow.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np

from oncall.collect.ring import RingReader
from oncall.collect.ring_layout import Wait
from oncall.errors import BadInput
from oncall.units import NS_PER_S

_LOOK_EVERY_NS = NS_PER_S  # for rings that are new, or of processes that are gone

Flow: TypeAlias = tuple[str, int, int]  # ring, communicator's slot, peer in it


@dataclass(frozen=True)
class InFlight:
    """A step of a flow. Times are CLOCK_MONOTONIC; `posted_ns`: since when all that goes on is on
    the wire and not acknowledged, None while a channel waits for its GPU or for the receiver."""

    flow: Flow
    operation: int
    began_ns: int
    posted_ns: int | None


class Boards:
    """The rings of living processes, open. Used by one thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._rings: dict[Path, RingReader] = {}
        self._look_at_ns = 0

    def read(self, now_ns: int) -> list[InFlight]:
        """Everything that is being sent; of a flow the newest operation."""
        if now_ns >= self._look_at_ns:
            self._look_at_ns = now_ns + _LOOK_EVERY_NS
            self._look()
        found = []
        for path, ring in list(self._rings.items()):
            try:
                found += list(_sent(path.name, ring))
            except (BadInput, OSError):  # source `rings` says why
                self._rings.pop(path).close()
        return found

    def close(self) -> None:
        for ring in self._rings.values():
            ring.close()
        self._rings.clear()

    def _look(self) -> None:
        paths = set(self._folder.glob("*.ring"))
        for path, ring in list(self._rings.items()):
            if path not in paths or ring.closed or not ring.alive:
                self._rings.pop(path).close()
        for path in sorted(paths - self._rings.keys()):
            with suppress(BadInput, OSError):
                ring = RingReader.open(path, consume=False)
                if ring.alive and not ring.closed:
                    self._rings[path] = ring
                else:
                    ring.close()


def _sent(name: str, ring: RingReader) -> Iterator[InFlight]:
    boards = ring.transfers().rows
    boards = boards[boards["is_send"] != 0]
    ends, place = np.unique(boards[["communicator", "peer"]], return_inverse=True)
    for number, end in enumerate(ends):
        mine = boards[place == number]
        mine = mine[mine["operation"] == mine["operation"].max()]
        is_posted = mine["wait"] == Wait.SEND_WIRE
        yield InFlight(
            (name, int(end["communicator"]), int(end["peer"])),
            int(mine["operation"][0]),
            int(mine["started_ns"].min()),
            int(mine["since_ns"].max()) if is_posted.all() else None,
        )
