"""A collector that takes over from another: what was in flight meanwhile is recorded to its end."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ring_writer import RingWriter, operations

from oncall.node.agent import recorder
from oncall.node.agent.agent import Agent
from oncall.node.agent.service import build
from oncall.node.common.config import Configuration
from oncall.node.common.log import Log
from oncall.node.rings.operations import OPERATION, pack, unpack
from oncall.node.store.catalog import sealed_shards
from oncall.node.store.reader import open_shards
from oncall.node.store.writer import LiveStore

Rows = Callable[[str], list[tuple[Any, ...]]]
COMM = 0xC0FFEE
# Operations without a recorded end, as `evidence.settle` reads it.
STILL_OPEN = """
    SELECT seq FROM ops GROUP BY comm, seq
    HAVING bool_and(ended_ns IS NULL AND coalesce(done = false, observed_ns IS NOT NULL))
    ORDER BY seq
"""


def started(config: Configuration) -> Agent:
    """A collector as `oncall collect` puts it together, to be stepped by hand."""
    agent, _ = build(config, Log(), prepare=lambda _: None)
    return agent


def committed(config: Configuration, *, sealed: bool = False) -> Agent:
    """A collector that has committed what it read, behind a seal or before the first."""
    agent = started(config)
    agent.step()
    if sealed:
        agent.seal(agent._clock())
        agent.step()
    agent._commit(agent._clock())
    return agent


def take_over(config: Configuration) -> None:
    """The next collector reads on, and ends in order."""
    agent = started(config)
    agent.step()
    agent.finish()


def lose(agent: Agent, ring: RingWriter, events: Any) -> None:
    """A collector reads these events and dies before it commits them."""
    ring.append(events)
    agent._drain(agent._clock())
    killed(agent)


def killed(agent: Agent) -> None:
    """Leave everything as kill -9 does: committed, neither drained again nor sealed."""
    agent._recorder.close()
    for source in agent._sources:
        source.close()


def open_operations(rings: Path) -> tuple[RingWriter, Any]:
    """A ring with one operation done and three begun, and the ends that are still to come."""
    ring = RingWriter(rings)
    ring.communicator(0, COMM)
    reported = operations(1, 4)
    begun, ends = (
        reported[(reported["operation"] == 1) | (reported["kind"] != 5)],
        reported[reported["kind"] == 5],
    )
    ring.append(begun)
    return ring, ends[1:]


def test_an_operation_that_ends_after_a_restart_is_reported_in_full(
    config: Configuration, rings: Path, sealed_rows: Rows
) -> None:
    ring, ends = open_operations(rings)
    take_over(config)
    assert sealed_rows(STILL_OPEN) == [(2,), (3,), (4,)]
    ring.append(ends)
    started(config).finish()
    assert sealed_rows(STILL_OPEN) == []
    assert sealed_rows(
        "SELECT seq, op, count, algo, channels, ended_ns - started_ns FROM ops "
        "WHERE ended_ns IS NOT NULL AND seq > 1 ORDER BY seq"
    ) == [(seq, "AllReduce", 1024, "RING", 2, 100) for seq in (2, 3, 4)]


def test_after_a_kill_too(config: Configuration, rings: Path, sealed_rows: Rows) -> None:
    ring, ends = open_operations(rings)
    first = committed(config, sealed=True)
    killed(first)
    ring.append(ends)
    started(config).finish()
    assert sealed_rows(STILL_OPEN) == []
    assert sealed_rows("SELECT count(*) FROM ops WHERE ended_ns IS NOT NULL") == [(4,)]
    assert sealed_rows("SELECT max(dropped) FROM collectors WHERE source = 'rings'") == [(0,)]


def test_ends_that_were_read_and_lost_are_reported_by_the_boards(
    config: Configuration, rings: Path, sealed_rows: Rows
) -> None:
    ring, ends = open_operations(rings)
    first = committed(config, sealed=True)
    lose(first, ring, ends[:2])
    take_over(config)
    assert sealed_rows(STILL_OPEN) == [(4,)]
    assert sealed_rows("SELECT max(dropped) FROM collectors WHERE source = 'rings'") == [(2,)]


def test_a_loss_is_counted_however_many_collectors_die_at_their_start(
    config: Configuration, rings: Path, sealed_rows: Rows
) -> None:
    ring, ends = open_operations(rings)
    first = committed(config)
    lose(first, ring, ends[:2])
    for _ in range(5):
        killed(started(config))
    started(config).finish()
    assert sealed_rows("SELECT max(dropped) FROM collectors WHERE source = 'rings'") == [(2,)]


def test_a_kill_between_two_pieces_of_a_commit_stores_nothing_twice(
    config: Configuration, rings: Path, sealed_rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were in flight at the commit before, and are over in the first piece."""
    monkeypatch.setattr(recorder, "COMMIT_BYTES", 1)
    ring, ends = open_operations(rings)
    first = started(replace(config, backlog_bytes=16 * 2**10))  # joins no drains
    first.step()
    first._commit(first._clock())
    for end in range(3):
        ring.append(ends[end : end + 1])
        first._drain(first._clock())
    write, written = LiveStore.write, []

    def killed_at_the_second(store: LiveStore, *reported: Any) -> int:
        if written:
            raise KeyboardInterrupt
        written.append(store)
        return write(store, *reported)

    with monkeypatch.context() as patched, suppress(KeyboardInterrupt):
        patched.setattr(LiveStore, "write", killed_at_the_second)
        first._commit(first._clock())
    killed(first)
    take_over(config)
    assert sealed_rows("SELECT seq, count(*) FROM ops WHERE done GROUP BY seq ORDER BY seq") == [
        (seq, 1) for seq in (1, 2, 3, 4)
    ]
    assert sealed_rows("SELECT max(dropped) FROM collectors WHERE source = 'rings'") == [(2,)]


def test_one_that_dies_between_two_stores_leaves_its_bookmarks_too(
    config: Configuration, rings: Path
) -> None:
    open_operations(rings)
    first = started(config)
    first.step()
    for _ in range(4):
        first.seal(first._clock())
        first._recorder.commit(first._clock().realtime_ns)  # a new store, and nothing more
    killed(first)
    started(config).finish()
    for shard in sealed_shards(config.data_dir):
        with open_shards([shard]) as shards:
            marks = f"SELECT name FROM {shards.con.sql('FROM shards').fetchall()[0][0]}.bookmarks"
            assert any("/drained" in name for (name,) in shards.con.sql(marks).fetchall())


def test_a_process_that_ended_meanwhile_has_nothing_in_flight(
    config: Configuration, rings: Path, sealed_rows: Rows
) -> None:
    ring, _ = open_operations(rings)
    take_over(config)
    ring.close()
    take_over(config)
    assert sealed_rows(STILL_OPEN) == []


def test_operations_are_kept_for_who_reads_them_alike() -> None:
    import numpy as np

    some = np.zeros(3, OPERATION)
    some["operation"], some["algorithm"] = (1, 2, 3), b"RING"
    kept = unpack(pack(some))
    assert kept is not None and (kept == some).all()
    assert unpack(b"????" + some.tobytes()) is None  # another layout
    assert unpack(pack(some)[:-1]) is None
    assert unpack(pack(np.zeros(100_000, OPERATION))) is None  # too many to be kept


def test_what_the_boards_count_as_over_is_reported_once_however_collectors_end(
    config: Configuration, rings: Path, sealed_rows: Rows
) -> None:
    ring, ends = open_operations(rings)
    first = committed(config)
    lose(first, ring, ends)
    second = started(config)
    second.step()
    second.seal(second._clock())
    killed(second)  # at once: nothing is collected behind the seal
    third = started(config)
    lose(third, ring, operations(5, 1))
    take_over(config)
    assert sealed_rows("SELECT seq, count(*) FROM ops WHERE done GROUP BY seq ORDER BY seq") == [
        (seq, 1) for seq in (1, 2, 3, 4)
    ]


def test_what_ended_before_older_ones_is_recorded_once(
    config: Configuration, rings: Path, sealed_rows: Rows
) -> None:
    """The board names the last one entered and counts one in flight: that is the one before it."""
    ring, ends = open_operations(rings)
    first = committed(config)
    lose(first, ring, ends)  # from here on the boards help out
    second = started(config)
    reported = operations(5, 2)
    last_end = (reported["kind"] == 5) & (reported["operation"] == 6)
    first_end = (reported["kind"] == 5) & (reported["operation"] == 5)
    ring.append(reported[~first_end & ~last_end])
    ring.append(reported[last_end])
    second._drain(second._clock())
    second.seal(second._clock())
    ring.append(reported[first_end])
    second.seal(second._clock())
    second.finish()
    assert sealed_rows("SELECT seq, count(*) FROM ops WHERE done GROUP BY seq ORDER BY seq") == [
        (seq, 1) for seq in (1, 2, 3, 4, 5, 6)
    ]
    ended = "SELECT seq FROM ops WHERE ended_ns IS NOT NULL AND seq > 4 ORDER BY seq"
    assert sealed_rows(ended) == [(5,), (6,)]
