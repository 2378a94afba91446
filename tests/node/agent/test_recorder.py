"""The recorder: it stops where nothing can be written, loses the oldest, and goes on by itself."""

from __future__ import annotations

import io
import itertools
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from oncall.node.agent.recorder import Recorder
from oncall.node.common.config import Configuration
from oncall.node.common.log import Log
from oncall.node.store.batch import Batch, one_row
from oncall.node.store.retention import SinceBoot
from oncall.node.store.writer import LiveStore

Rows = Callable[[str], list[tuple[Any, ...]]]
SECOND_NS = 10**9


def _seqs(first: int, count: int) -> Batch:
    return Batch("ops", count, {"job": "llama", "seq": np.arange(first, first + count)})


def _log() -> tuple[Log, io.StringIO]:
    said = io.StringIO()
    return Log(said, {}), said


def test_it_stops_when_little_is_free_and_goes_on_by_itself(
    config: Configuration, sealed_rows: Rows, monkeypatch: Any
) -> None:
    log, said = _log()
    row_bytes = _seqs(1, 100).bytes
    small = replace(config, keep_free_bytes=2**20, backlog_bytes=row_bytes * 3)
    monotonic = itertools.count(SECOND_NS, 10 * SECOND_NS)  # it is always time to try again
    recorder = Recorder(small, log, monotonic_ns=lambda: next(monotonic))
    recorder.add([_seqs(1, 100)])
    assert recorder.commit(SECOND_NS) == 100
    real = os.statvfs(config.data_dir)

    class Full:
        f_bavail, f_frsize = 1, 4096

    monkeypatch.setattr(os, "statvfs", lambda _: Full)
    for number in range(1, 6):
        recorder.add([_seqs(number * 100 + 1, 100)])
        assert recorder.commit((1 + number) * SECOND_NS) == 0
    assert recorder.problem is not None
    assert "kept for others" in recorder.problem
    assert not recorder.seal(8 * SECOND_NS)
    with recorder.reading() as reading:  # it still answers: nothing is committed in this store
        assert reading.con.execute("FROM ops").fetchall() == []
    assert sum(batch.rows for batch in recorder.waiting) == 300
    monkeypatch.setattr(os, "statvfs", lambda _: real)
    assert recorder.commit(20 * SECOND_NS) == 300
    assert (recorder.problem, recorder.dropped) == (None, 200)
    recorder.seal(21 * SECOND_NS)
    recorder.settle()
    assert sealed_rows("SELECT count(*), min(seq), max(seq) FROM ops") == [(400, 1, 600)]
    assert sealed_rows("SELECT count(*) FROM ops WHERE seq BETWEEN 101 AND 300") == [(0,)]
    reported = said.getvalue()
    assert reported.count("not writing") == 1
    assert reported.count("writing again; 200 rows were lost so far") == 1


@pytest.mark.parametrize("set_by_ns", [-(10**15), 0, 10**15])
def test_the_next_attempt_comes_when_it_is_due_however_the_clock_is_set(
    config: Configuration, set_by_ns: int
) -> None:
    monotonic = [SECOND_NS]
    recorder = Recorder(config, _log()[0], monotonic_ns=lambda: monotonic[0])
    away = config.data_dir.with_name("away")
    config.data_dir.rename(away)
    recorder.add([_seqs(1, 100)])
    wall_ns = 10**18
    assert recorder.commit(wall_ns) == 0
    away.rename(config.data_dir)
    monotonic[0] += SECOND_NS
    assert recorder.commit(wall_ns + set_by_ns) == 0  # not yet
    monotonic[0] += 5 * SECOND_NS
    assert recorder.commit(wall_ns + set_by_ns) == 100
    recorder.close()


def test_recording_goes_on_while_a_shard_is_sealed(
    config: Configuration, sealed_rows: Rows
) -> None:
    log, _ = _log()
    going, may_end = threading.Event(), threading.Event()

    def prepare(_: object) -> None:
        going.set()
        assert may_end.wait(30)

    recorder = Recorder(config, log, prepare)
    recorder.add([_seqs(1, 10)])
    recorder.commit(SECOND_NS)
    assert recorder.seal(2 * SECOND_NS)
    assert going.wait(30)
    recorder.add([_seqs(11, 10)])
    assert recorder.commit(2 * SECOND_NS) == 0  # they wait
    assert not recorder.seal(2 * SECOND_NS)
    may_end.set()
    recorder.settle()
    assert recorder.commit(3 * SECOND_NS) == 10
    recorder.seal(4 * SECOND_NS)
    recorder.settle()
    assert sealed_rows("SELECT count(*) FROM ops") == [(20,)]
    recorder.close()


def test_the_oldest_shards_go(config: Configuration) -> None:
    log, said = _log()
    uptime = SinceBoot("boot", 0)
    recorder = Recorder(replace(config, keep_ns=10 * SECOND_NS), log, boot_clock=lambda: uptime)
    for second in (1, 5, 30):
        uptime = SinceBoot("boot", second * SECOND_NS)
        recorder.add([_seqs(second, 1)])
        recorder.commit(second * SECOND_NS)
        assert recorder.seal(second * SECOND_NS + 1)
        recorder.settle()
    assert len(list(config.data_dir.glob("*.duckdb"))) == 1
    assert said.getvalue().count("retired") == 2
    recorder.close()


def test_no_step_of_the_clock_makes_a_shard_old(config: Configuration) -> None:
    recorder = Recorder(replace(config, keep_ns=3600 * SECOND_NS), _log()[0])
    for wall_ns in (10**18, 10**18 + 10**15, 10**17, 2 * 10**18):
        recorder.add([_seqs(1, 1)])
        recorder.commit(wall_ns)
        assert recorder.seal(wall_ns + 1)
        recorder.settle()
    assert len(list(config.data_dir.glob("*.duckdb"))) == 4
    recorder.close()


def test_under_journald_lines_carry_their_priority() -> None:
    said = io.StringIO()
    Log(said, {"JOURNAL_STREAM": "8:1"}).error("two\nlines")
    assert said.getvalue() == "<3>two lines\n"


def test_bookmarks_are_committed_with_their_rows_also_where_some_cannot_be(
    config: Configuration, monkeypatch: Any
) -> None:
    """Or a kill between them would call rows committed that are lost, or store them twice."""
    log, _ = _log()
    recorder = Recorder(config, log)
    seen: list[tuple[int, Any]] = []
    write = LiveStore.write

    def watched(
        store: LiveStore, batches: Sequence[Batch], marks: Any = None, token: str = ""
    ) -> int:
        rows = write(store, batches, marks, token)
        seen.append((rows, marks))
        return rows

    monkeypatch.setattr(LiveStore, "write", watched)
    garbage = one_row("ranks", job="llama", rank=2**40)
    recorder.add([_seqs(1, 10), garbage, one_row("jobs", job="llama")], {"rings": {"ring": 1}})
    recorder.add([_seqs(11, 20)], {"rings": {"ring": 2}})
    assert recorder.commit(SECOND_NS) == 31
    assert seen == [(31, {"rings/ring": 2})]
    recorder.close()
