"""The live store: what a killed collector leaves behind is recovered, or set aside and named."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from oncall.node.store.batch import Batch
from oncall.node.store.bookmarks import recall
from oncall.node.store.catalog import sealed_shards
from oncall.node.store.reader import open_shards
from oncall.node.store.writer import (
    LiveStore,
    Place,
    PrepareError,
    StoreError,
    UnwritableRows,
    recover,
)

Operations = Callable[..., Batch]
NOW_NS = 2 * 10**18


def _rows(folder: Path) -> int:
    with open_shards(sealed_shards(folder)) as shards:
        assert shards.gaps == ()
        ((rows,),) = shards.con.execute("SELECT count(*) FROM ops").fetchall()
        return int(rows)


def _left_behind(place: Place, rows: int) -> None:
    """A live store as a killed process leaves it: committed, its log not folded in."""
    child = """
import os, signal, sys
from pathlib import Path
from oncall.node.store.batch import one_row
from oncall.node.store.writer import LiveStore, Place
store = LiveStore(Place(Path(sys.argv[1]), "gpu017"), 10**18)
for seq in range(int(sys.argv[2])):
    store.write([one_row("ops", job="llama", seq=seq)], {"ring": seq})
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", child, str(place.folder), str(rows)])
    assert done.returncode == -signal.SIGKILL
    assert place.live_log.stat().st_size


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path, "gpu017")


@pytest.mark.parametrize("delay_ms", [3, 20])
def test_a_kill_in_a_large_commit_leaves_all_of_it_or_nothing(place: Place, delay_ms: int) -> None:
    """Of more rows than a row group DuckDB writes the data first, and then a log that names it."""
    child = """
import sys
from pathlib import Path
import numpy as np
from oncall.node.store.batch import Batch
from oncall.node.store.writer import LiveStore, Place
store = LiveStore(Place(Path(sys.argv[1]), "gpu017"), 10**18)
for number in range(10**6):
    seq = np.arange(number * 10_000, (number + 1) * 10_000)
    store.write([Batch("ops", 10_000, {"job": "llama", "seq": seq})], {"ring": number})
    print(number, flush=True)
"""
    command = [sys.executable, "-c", child, str(place.folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writing:
        assert writing.stdout
        reported = [int(writing.stdout.readline()) for _ in range(3)]
        time.sleep(delay_ms / 1000)
        writing.kill()
        reported += [int(line) for line in writing.stdout]
    recover(place, NOW_NS)
    bookmark = recall(place.folder, place.node)["ring"]
    assert isinstance(bookmark, int)
    assert reported[-1] <= bookmark <= reported[-1] + 1
    with open_shards(sealed_shards(place.folder)) as shards:
        found = shards.con.execute("SELECT count(*), count(DISTINCT seq), max(seq) FROM ops")
        rows = (bookmark + 1) * 10_000
        assert found.fetchall() == [(rows, rows, rows - 1)]


def test_nothing_left_behind_is_nothing_to_do(place: Place) -> None:
    found = recover(place, NOW_NS)
    assert (found.shard, found.set_aside, found.problem) == (None, (), None)


def test_a_damaged_log_is_set_aside_and_the_rest_is_sealed(place: Place) -> None:
    _left_behind(place, 20)
    log = bytearray(place.live_log.read_bytes())
    log[len(log) // 2 : len(log) // 2 + 50] = b"\x55" * 50
    place.live_log.write_bytes(log)
    found = recover(place, NOW_NS)
    assert [path.name for path in found.set_aside] == [f"live.duckdb.wal.{NOW_NS}.damaged"]
    assert found.problem is not None
    assert "WAL" in found.problem
    LiveStore(place, NOW_NS).close()  # and a new one can begin


def test_a_damaged_store_is_set_aside(place: Place) -> None:
    place.live.write_bytes(b"no database at all" * 10_000)
    found = recover(place, NOW_NS)
    assert found.shard is None
    assert [path.name for path in found.set_aside] == [f"live.duckdb.{NOW_NS}.damaged"]
    assert found.problem
    LiveStore(place, NOW_NS).close()


def test_one_that_another_process_holds_is_left_alone(place: Place) -> None:
    holder = subprocess.Popen(
        [
            *(sys.executable, "-c"),
            f"import duckdb, sys; held = duckdb.connect({str(place.live)!r}); print(flush=True); "
            "sys.stdin.read()",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(StoreError, match="lock"):
            recover(place, NOW_NS)
        assert place.live.exists()
    finally:
        holder.kill()
        holder.communicate()


def test_a_failing_digest_costs_no_evidence(place: Place, operations: Operations) -> None:
    def fail(con: duckdb.DuckDBPyConnection) -> None:
        con.execute("FROM nowhere")

    store = LiveStore(place, NOW_NS)
    store.write([operations(10)])
    with pytest.raises(PrepareError, match="nowhere"):
        store.seal(NOW_NS + 1, fail)
    assert _rows(place.folder) == 10


def test_little_room_is_left_to_others(tmp_path: Path) -> None:
    free = os.statvfs(tmp_path)
    too_much = free.f_bavail * free.f_frsize * 2
    with pytest.raises(StoreError, match="kept for others"):
        Place(tmp_path, "gpu017", too_much).check_free()


def test_a_folder_that_went_away_is_said(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="No such file"):
        Place(tmp_path / "gone", "gpu017").check_free()


def test_rows_of_one_write_are_there_together_or_not_at_all(
    place: Place, operations: Operations
) -> None:
    store = LiveStore(place, NOW_NS)
    store.write([operations(5)])
    wrong = Batch("ops", 1, {"job": "llama", "rank": 2**40})  # no INTEGER
    with pytest.raises(UnwritableRows, match="INT32"):
        store.write([operations(5, first=6), wrong])
    store.write([operations(5, first=11)])  # the store goes on
    store.close()
    recover(place, NOW_NS)
    assert _rows(place.folder) == 10
