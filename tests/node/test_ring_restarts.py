"""Whatever a collector had read, committed or lost when it was killed: each operation that is over
is committed at most once."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ring_writer import RingWriter, operations

from oncall.core.units import NS_PER_S
from oncall.node.common.source import Collected, Instant
from oncall.node.rings import rings
from oncall.node.rings.ring_layout import Operation, RecordKind
from oncall.node.rings.rings import RingSource
from oncall.node.store.bookmarks import Bookmark

_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(1, 60)),
        st.tuples(st.just("commit"), st.integers(0, 4)),
        st.sampled_from([("collect", 0), ("seal", 0), ("kill", 0)]),
    ),
    min_size=10,
    max_size=60,
)


def _records(seed: int, blocks: int = 12, each: int = 16) -> Any:
    """Collectives and sends of which the ends come late, in any order."""
    random = np.random.default_rng(seed)
    parts = []
    sequences = [1, 1]
    for block in range(blocks):
        slot = int(random.integers(2))
        part = operations(
            1 + block * each,
            each,
            slot,
            sequence=sequences[slot],
            op=Operation.SEND if slot else Operation.ALL_REDUCE,
            peer=1 if slot else -1,
        )
        at = np.arange(len(part)).astype(float)
        ends = part["kind"] == RecordKind.ENDED
        at[ends] += random.integers(0, 60, ends.sum()) + 0.5
        parts.append(part[np.argsort(at, kind="stable")])
        sequences[slot] += each
    return np.concatenate(parts)


@dataclass(frozen=True)
class _Drain:
    """Operations that are over, and what is committed with them."""

    over: list[tuple[int, int]]
    bookmarks: Mapping[str, Bookmark]


class _Collectors:
    """One after the other on one ring, and what they have committed, drain by drain."""

    def __init__(self, rings: Path) -> None:
        self._rings = rings
        self._turn = 0
        self._read: list[_Drain] = []
        self._committed = _Drain([], {})
        self.over: Counter[tuple[Any, ...]] = Counter()
        self._start()

    def _start(self) -> None:
        self._source = RingSource(self._rings, "gpu017", NS_PER_S, self._committed.bookmarks)
        self.collect()

    @property
    def _now(self) -> Instant:
        self._turn += 1
        return Instant(10**18 + self._turn * NS_PER_S, self._turn * NS_PER_S)

    def collect(self) -> None:
        found = Collected(more=True)
        while found.more:
            found = self._source.collect(self._now)
            over: list[tuple[int, int]] = []
            for batch in found.batches:
                if batch.table == "ops" and "done" in batch.columns:
                    done = np.ma.filled(batch.columns["done"], False)
                    comms = np.ma.filled(batch.columns["comm"], 0)
                    over += zip(comms[done], batch.columns["seq"][done], strict=True)
            self._read.append(_Drain(over, found.bookmarks or {}))

    def commit(self, most: int | None = None) -> None:
        """The first `most` drains of those that wait; None: all."""
        for drain in self._read[:most]:
            self.over.update((int(comm), int(seq)) for comm, seq in drain.over)
            self._committed = drain
        self._read = [] if most is None else self._read[most:]

    def seal(self) -> None:
        self.collect()
        self._source.current_state(self._now)
        self.collect()
        self.commit()

    def kill(self) -> None:
        self.close()
        self._read = []
        self._start()

    def close(self) -> None:
        self._source.close()


@settings(max_examples=60, deadline=None)
@given(steps=_STEPS, seed=st.integers(0, 1000))
def test_an_operation_is_committed_as_over_at_most_once(
    steps: list[tuple[str, int]], seed: int
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        patched.setattr(rings, "_MOST_RECORDS", 20)
        ring = RingWriter(Path(folder), records=4096)
        ring.communicator(0, 0xC0FFEE)
        ring.communicator(1, 0xBEEF)
        pending = _records(seed)
        collectors = _Collectors(Path(folder))
        for step, count in [*steps, ("write", len(pending)), ("seal", 0), ("seal", 0)]:
            if step == "write":
                ring.append(pending[:count])
                pending = pending[count:]
            elif step == "commit":
                collectors.commit(count)
            else:
                getattr(collectors, step)()
        collectors.close()
    assert [operation for operation, times in collectors.over.items() if times > 1] == []
