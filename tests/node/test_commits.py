"""What is committed is there once: after a commit that failed half way, after rows that no store
holds, and after a kill between them."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from oncall.node.agent import recorder as recorder_module
from oncall.node.agent.recorder import Recorder
from oncall.node.common.config import Configuration
from oncall.node.common.log import Log
from oncall.node.store.backlog import Backlog
from oncall.node.store.batch import Batch, one_row
from oncall.node.store.bookmarks import recall
from oncall.node.store.writer import LiveStore, Place, StoreError, recover

Rows = Callable[[str], list[tuple[Any, ...]]]
SECOND_NS = 10**9
EACH_ONCE = "SELECT count(*), count(DISTINCT seq) FROM ops"


def _seqs(first: int, count: int) -> Batch:
    return Batch("ops", count, {"job": "llama", "seq": np.arange(first, first + count)})


def _recorder(config: Configuration) -> Recorder:
    return Recorder(config, Log(io.StringIO(), {}))


def _sealed(recorder: Recorder, at_s: int) -> None:
    assert recorder.seal(at_s * SECOND_NS)
    recorder.settle()
    recorder.close()


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_commit_that_fails_is_in_the_store_once_whichever_half_failed(
    config: Configuration,
    sealed_rows: Rows,
    monkeypatch: pytest.MonkeyPatch,
    is_committed: bool,
) -> None:
    """A full disk: the commit fails, or the checkpoint that comes behind it."""
    recorder = _recorder(config)
    recorder.add([_seqs(1, 100)])
    assert recorder.commit(SECOND_NS) == 100
    real = LiveStore.write

    def fail(store: LiveStore, *reported: Any) -> int:
        if is_committed:
            real(store, *reported)
        raise StoreError("no space left on device")

    recorder.add([_seqs(101, 100)])
    monkeypatch.setattr(LiveStore, "write", fail)
    recorder.commit(2 * SECOND_NS)
    assert recorder.problem
    monkeypatch.setattr(LiveStore, "write", real)
    recorder.try_again()
    recorder.add([_seqs(201, 100)])
    recorder.commit(3 * SECOND_NS)
    _sealed(recorder, 4)
    assert sealed_rows(EACH_ONCE) == [(300, 300)]


def test_rows_beside_some_that_no_store_holds_are_written_once(
    config: Configuration, sealed_rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written drain by drain, the disk fills up among them."""
    recorder = _recorder(config)
    wrong = one_row("ranks", job="llama", rank=2**40)
    monkeypatch.setattr(recorder_module, "COMMIT_BYTES", 2**40)
    recorder._backlog = Backlog(2**10)  # joins nothing
    recorder.add([_seqs(1, 10), wrong])
    recorder.add([_seqs(11, 10)])
    real, written = LiveStore.write, []

    def fail_at_the_last(store: LiveStore, batches: Any, *reported: Any) -> int:
        written.append(len(batches))
        if len(written) == 4:
            raise StoreError("no space left on device")
        return real(store, batches, *reported)

    monkeypatch.setattr(LiveStore, "write", fail_at_the_last)
    assert recorder.commit(SECOND_NS) == 0  # 10 are committed: the call failed
    assert written == [3, 2, 1, 1]  # all, the first drain, what of it can be, the second drain
    monkeypatch.setattr(LiveStore, "write", real)
    recorder.try_again()
    assert recorder.commit(2 * SECOND_NS) == 10
    assert recorder.dropped == 1
    _sealed(recorder, 3)
    assert sealed_rows(EACH_ONCE) == [(20, 20)]


@pytest.mark.parametrize("pieces", [0, 1, 2, 3, 4])
def test_every_transaction_holds_the_bookmark_of_exactly_its_rows(
    config: Configuration, sealed_rows: Rows, monkeypatch: pytest.MonkeyPatch, pieces: int
) -> None:
    """Killed between two pieces of a commit."""
    monkeypatch.setattr(recorder_module, "COMMIT_BYTES", 1)
    recorder = _recorder(config)
    recorder.commit(SECOND_NS)
    recorder._backlog = Backlog(2**10)  # joins nothing
    for number in range(1, 4):
        recorder.add([_seqs(10 * number, 10)], {"rings": {"ring": number}, "other": {}})
    recorder.add([], {"other": {"next": 7}})
    real, written = LiveStore.write, []

    def killed_after(store: LiveStore, *reported: Any) -> int:
        if len(written) == pieces:
            raise KeyboardInterrupt
        written.append(1)
        return real(store, *reported)

    monkeypatch.setattr(LiveStore, "write", killed_after)
    with suppress(KeyboardInterrupt):
        recorder.commit(2 * SECOND_NS)
    recorder.close()
    recover(Place(config.data_dir, config.node), 3 * SECOND_NS)
    marks = [{}, *({"rings/ring": number} for number in (1, 2, 3))]
    marks.append(marks[-1] | {"other/next": 7})
    assert recall(config.data_dir, config.node) == marks[pieces]
    assert sealed_rows("SELECT count(*) FROM ops") == [(10 * min(pieces, 3),)]


def test_a_log_without_its_store_is_set_aside(config: Configuration) -> None:
    place = Place(config.data_dir, config.node)
    place.live_log.write_bytes(b"of another store")
    found = recover(place, SECOND_NS)
    assert [path.name for path in found.set_aside] == [f"live.duckdb.wal.{SECOND_NS}.damaged"]
    LiveStore(place, SECOND_NS).close()


def test_a_seal_gets_its_turn_however_many_read(config: Configuration) -> None:
    recorder = _recorder(config)
    recorder.add([_seqs(1, 10)])
    recorder.commit(SECOND_NS)
    with recorder.reading():
        assert not recorder.seal(2 * SECOND_NS)
        assert not recorder._may_read.is_set()  # who asks now waits behind the seal
    _sealed(recorder, 3)
    assert recorder._may_read.is_set()


def test_readings_wait_for_one_another_and_are_shown_meanwhile(
    config: Configuration, sealed_rows: Rows
) -> None:
    """A commit costs by the table: theirs go together, and with a seal at the latest."""
    monotonic = [10 * SECOND_NS]
    log = Log(io.StringIO(), {})
    recorder = Recorder(config, log, monotonic_ns=lambda: monotonic[0])
    written = []
    for second in range(1, 8):
        monotonic[0] += SECOND_NS
        recorder.add([one_row("hosts", node="gpu017", at_ns=second), _seqs(second, 1)])
        written.append(recorder.commit(second * SECOND_NS, everything=False))
    assert written == [2, 1, 1, 1, 1, 6, 1]
    assert [batch.table for batch in recorder.waiting] == ["hosts"]
    assert recorder.commit(8 * SECOND_NS) == 1
    _sealed(recorder, 9)
    assert sealed_rows("SELECT count(*), count(DISTINCT at_ns) FROM hosts") == [(7, 7)]
