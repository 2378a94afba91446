"""A training process's ring, of which every record's place is known.

Operations are written in order while an `Account` of them is kept: which operation stands at which
position of the ring. With the positions that a collector had committed when it died, that tells for
every single operation whether it must be in the store.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from ring_writer import RingWriter, operations

from oncall.node.rings.ring_layout import Operation, RecordKind

Array = np.ndarray[Any, Any]
COLLECTIVES, SENDS = 0xC0FFEE, 0xBEEF  # communicators
EACH = 5  # records of an operation
_BLOCK = 64  # operations that are interleaved
_LATE = 200  # records by which an operation's end may come later than its beginning
_SLOTS = 1 << 16


@dataclass(frozen=True)
class Written:
    """Operations (n,) as written: what they are, and where their records stand in the ring."""

    comm: Array
    seq: Array
    first: Array  # position of the first record
    last: Array  # position of the last one

    def __len__(self) -> int:
        return len(self.comm)


class Stream(threading.Thread):
    """Writes operations at a steady rate until `stop`, and never more than there is room for."""

    def __init__(self, folder: Path, rate: int, seed: int, records: int = _SLOTS) -> None:
        super().__init__(daemon=True)
        self.ring = RingWriter(folder, records=records)
        for slot, identity in enumerate((COLLECTIVES, SENDS)):
            self.ring.communicator(slot, identity)
        self._records = records
        self._rate = rate
        self._random = np.random.default_rng(seed)
        self._parts: list[Array] = []  # (operations, 4): comm, seq, first, last
        self._sequences = [1, 1]  # of each slot
        self._number = 1
        self._pending: Array = np.zeros(0, np.int64)
        self._leave = threading.Event()

    @property
    def head(self) -> int:
        return int(self.ring.header["head"][0])

    @property
    def tail(self) -> int:
        return int(self.ring.header["tail"][0])

    def run(self) -> None:
        pause_s = 0.005
        owed = 0.0
        while not self._leave.wait(pause_s):
            owed = min(owed + self._rate * EACH * pause_s, 2_000)
            owed -= self.write(int(owed))

    def stop(self) -> None:
        """No more; what was begun is written to its end."""
        self._leave.set()
        self.join()
        while len(self._pending):
            self.write(len(self._pending))
            time.sleep(0.001)

    def write(self, most: int) -> int:
        """Put the next records in, as many as there is room for; how many that were."""
        room = self._records - (self.head - self.tail)
        count = min(most, room)
        if count and not len(self._pending):
            self._pending = self._next_block()
        chunk, self._pending = self._pending[:count], self._pending[count:]
        written = self.ring.append(chunk) if len(chunk) else 0
        assert written == len(chunk)
        return written

    def written(self) -> Written:
        """Every operation begun so far; call it when nothing is being written."""
        parts = np.concatenate([np.zeros((0, 4), np.int64), *self._parts])
        return Written(*parts.T)

    def _next_block(self) -> Array:
        slot = int(self._random.integers(2))
        records = operations(
            self._number,
            _BLOCK,
            slot,
            sequence=self._sequences[slot],
            op=Operation.SEND if slot else Operation.ALL_REDUCE,
            peer=1 if slot else -1,
        )
        # Ends come late, so that a kill finds operations of every age in flight.
        at = np.arange(len(records)).astype(float)
        ends = records["kind"] == RecordKind.ENDED
        at[ends] += self._random.integers(0, _LATE, ends.sum()) + 0.5
        records = records[np.argsort(at, kind="stable")]
        start = self.head  # the block begins when the one before it is in the ring
        index = records["operation"].astype(np.int64) - self._number
        places = start + np.arange(len(records))
        part = np.zeros((_BLOCK, 4), np.int64)
        part[:, 0] = SENDS if slot else COLLECTIVES
        part[:, 1] = self._sequences[slot] + np.arange(_BLOCK)
        part[index[::-1], 2] = places[::-1]  # the first one wins
        part[index, 3] = places
        self._parts.append(part)
        self._number += _BLOCK
        self._sequences[slot] += _BLOCK
        return records
