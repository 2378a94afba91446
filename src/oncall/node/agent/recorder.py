"""From rows to sealed shards: commit, seal, delete old shards; and what happens when the disk is
full.

Rows wait in a bounded backlog until they are committed. While nothing can be written, the backlog
keeps the newest rows and counts those it drops. As soon as there is room again, writing resumes.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import duckdb

from oncall.core.units import NS_PER_S, format_bytes, format_number
from oncall.node.common.config import Configuration
from oncall.node.common.log import Log
from oncall.node.store.backlog import Backlog, Drain
from oncall.node.store.batch import Batch
from oncall.node.store.bookmarks import Bookmark, recall, replaced
from oncall.node.store.database import Limits
from oncall.node.store.retention import BootClock, Retention, read_boot_clock, retire
from oncall.node.store.writer import (
    LiveStore,
    Place,
    PrepareError,
    StoreError,
    UnwritableRows,
    open_instance,
    recover,
)

Prepare = Callable[[duckdb.DuckDBPyConnection], object]

# Readings that come again every second, and that no bookmark goes with. A commit costs by the
# table, however few its rows are, so theirs go together.
READINGS = ("hosts", "host_processes", "nics", "nic_priorities", "gpus")
READINGS_NS = 5 * NS_PER_S
# Of rows in one transaction: each costs some milliseconds however small it is, and a row group of
# the store (writer._ROW_GROUP) should be full.
COMMIT_BYTES = 6 * 2**20
_RETRY_NS = 5 * NS_PER_S
_SEAL_WITHIN_S = 10.0  # that readers give a seal which waits for its turn


@dataclass(frozen=True)
class Reading:
    """A connection to the rows that are not sealed yet. Each evidence table is there, those with
    rows (`tables`) in `live.main`."""

    con: duckdb.DuckDBPyConnection
    tables: frozenset[str]


class Recorder:
    """The store of one collector. One thread records; others read within `reading`."""

    def __init__(
        self,
        config: Configuration,
        log: Log,
        prepare: Prepare | None = None,
        *,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
        boot_clock: BootClock = read_boot_clock,
    ) -> None:
        self.problem: str | None = None  # why nothing is written now
        self.unsealed = 0  # operations in the live store
        self._place = Place(config.data_dir, config.node, config.keep_free_bytes, boot_clock)
        self._log = log
        self._prepare = prepare
        self._store: LiveStore | None = None
        self._instance: duckdb.DuckDBPyConnection | None = None  # of all stores, one by one
        self._backlog = Backlog(config.backlog_bytes)
        self._readings = Backlog(config.backlog_bytes)  # that wait for one another
        self._readings_at_ns = 0  # when they are committed, on the monotonic clock
        self._unwritable = 0
        self._monotonic_ns = monotonic_ns
        self._retry_at_ns: int | None = None  # on the monotonic clock
        self._marked: dict[str, Bookmark] | None = None  # those committed last, where known
        self._unsure: tuple[str, Sequence[Batch]] | None = None  # token and rows of a commit
        self._readers = threading.Lock()  # held by who reads the store, and by who seals it
        self._may_read = threading.Event()  # not while a seal waits: readers would never let it
        self._may_read.set()
        self._sealing: threading.Thread | None = None
        self._seal_failure: StoreError | None = None
        self.configure(config)

    def configure(self, config: Configuration) -> None:
        """Apply the options that may change while the collector runs."""
        self._retention = Retention(config.keep_ns, config.keep_bytes)
        self._limits = Limits(memory_bytes=config.store_memory_bytes)

    @property
    def dropped(self) -> int:
        """Rows dropped so far because they could not be written."""
        return self._backlog.dropped + self._readings.dropped + self._unwritable

    @property
    def waiting(self) -> tuple[Batch, ...]:
        """Rows that are not committed."""
        return (*self._backlog.batches, *self._readings.batches)

    @property
    def is_due(self) -> bool:
        """Whether so many rows wait that they should be committed early."""
        is_sealing = self._sealing is not None and self._sealing.is_alive()
        return self.problem is None and not is_sealing and self._backlog.bytes >= COMMIT_BYTES

    def add(
        self,
        batches: Sequence[Batch],
        bookmarks: Mapping[str, Mapping[str, Bookmark]] | None = None,
    ) -> None:
        """Queue the rows of one drain for the next commit, in one transaction with its
        `bookmarks`, by source; readings for one of the next seconds."""
        for batch in batches:
            if batch.table in READINGS:
                self._readings.add([batch])
        others = [batch for batch in batches if batch.table not in READINGS]
        if others or bookmarks:
            self._backlog.add(others, bookmarks)
        if self._readings.bytes >= COMMIT_BYTES // 2:
            self._backlog.add(self._readings.take())

    def add_first(self, batches: Sequence[Batch]) -> None:
        """Queue rows for the next commit's first transaction."""
        self._backlog.add_first(batches)

    def commit(self, now_ns: int, *, everything: bool = True) -> int:
        """Write the waiting rows, if that is possible now; without `everything`, readings only when
        they are due. Returns the number of rows written."""
        if everything or self._monotonic_ns() >= self._readings_at_ns:
            self._readings_at_ns = self._monotonic_ns() + READINGS_NS
            self._backlog.add(self._readings.take())
        if self._sealing and self._sealing.is_alive():
            return 0
        if self._seal_failure:
            failure, self._seal_failure = self._seal_failure, None
            self._stop_writing(failure)
        if self._retry_at_ns is not None and self._monotonic_ns() < self._retry_at_ns:
            return 0
        rows = 0
        try:
            self._place.check_free()
            if self._store is None:
                self._store = self._open(now_ns)
            self._store.saw(now_ns)
            self._retry_at_ns = None
            # In pieces: what DuckDB holds for a transaction is many times its rows.
            while drains := self._backlog.first(COMMIT_BYTES):
                rows += self._write(self._store, drains)
        except StoreError as error:
            self._stop_writing(error)
            return rows
        if self.problem:
            self._log.warning(f"writing again; {format_number(self.dropped)} rows were lost so far")
            self.problem = None
        return rows

    def seal(self, now_ns: int) -> bool:
        """Begin to seal what is committed, in a thread of its own; False if that has to wait.

        Until it is done rows wait in the backlog. It waits while an answer is being read from the
        store, and while nothing can be written.
        """
        if self._store is None or self.problem:
            self._may_read.set()
            return False
        if not self._readers.acquire(blocking=False):
            self._may_read.clear()
            return False
        store, self._store = self._store, None
        self.unsealed = 0
        self._sealing = threading.Thread(target=self._seal, args=(store, now_ns), name="seal")
        self._sealing.start()
        return True

    def try_again(self) -> None:
        """Write at the next commit even if the last attempt failed a moment ago: it is the last
        commit."""
        self._retry_at_ns = None

    def settle(self) -> None:
        """Wait until sealing is done."""
        if self._sealing:
            self._sealing.join()

    def _seal(self, store: LiveStore, now_ns: int) -> None:
        """Seal a store that nobody else uses any more; holds the readers' lock."""
        began = time.monotonic()
        try:
            try:
                shard = store.seal(now_ns, self._prepare)
            except PrepareError as error:
                shard = error.shard
                self._log.error(f"{shard.path.name}: sealed without a digest: {error}")
            took_ms = round((time.monotonic() - began) * 1000)
            self._log.info(f"{shard.path.name}: sealed, {shard.size_bytes:,} bytes in {took_ms} ms")
            place = self._place
            for gone in retire(place.folder, place.node, self._retention, place.boot_clock):
                self._log.info(f"{gone.path.name}: retired")
        except (StoreError, OSError) as error:
            store.close()
            self._seal_failure = StoreError(str(error))
        finally:
            self._may_read.set()
            self._readers.release()

    @contextmanager
    def reading(self) -> Iterator[Reading]:
        """Read the committed rows. Sealing waits meanwhile and runs next."""
        self._may_read.wait(_SEAL_WITHIN_S)
        with self._readers:
            store = self._store
            con = store.cursor() if store else open_instance(self._limits)
            try:
                yield Reading(con, store.tables if store else frozenset())
            finally:
                con.close()

    def close(self) -> None:
        """Close the live store, if there is one; the next collector recovers it."""
        self.settle()
        with self._readers:
            self._leave_store()

    def _write(self, store: LiveStore, drains: Sequence[Drain]) -> int:
        """Commit the first drains of the backlog, without those rows that no store can hold;
        returns how many rows. Each leaves the backlog as soon as it is committed."""
        batches = [batch for drain in drains for batch in drain.batches]
        try:
            rows = self._write_at_once(store, batches, drains)
        except UnwritableRows as error:
            if len(drains) > 1:
                return sum(self._write(store, [drain]) for drain in drains)
            batches = self._writable(store, batches, error)
            rows = self._write_at_once(store, batches, drains)
        self._backlog.written(drains)
        self.unsealed += rows and sum(batch.rows for batch in batches if batch.table == "ops")
        return rows

    def _writable(
        self, store: LiveStore, batches: Sequence[Batch], error: UnwritableRows
    ) -> list[Batch]:
        """Those of one drain's batches that a store can hold; the others are counted."""
        found = []
        for batch in batches:
            if why := store.why_unwritable([batch]):
                self._drop(batch, why)
            else:
                found.append(batch)
        if len(found) < len(batches) and store.why_unwritable(found) is None:
            return found
        for batch in found:  # each could be written, but not together
            self._drop(batch, error)
        return []

    def _drop(self, batch: Batch, why: UnwritableRows) -> None:
        self._unwritable += batch.rows
        self._log.error(f"{batch.table}: rows dropped: {why}")

    def _write_at_once(
        self, store: LiveStore, batches: Sequence[Batch], drains: Sequence[Drain]
    ) -> int:
        """Commit rows and the bookmarks of their drains in one transaction; returns how many
        rows. Raises as `LiveStore.write`."""
        marked = self._marked or {}
        marks = replaced(marked, *(drain.bookmarks for drain in drains))
        if not batches and marks == marked:
            return 0
        token = uuid.uuid4().hex
        self._unsure = (token, batches)
        try:
            rows = store.write(batches, None if marks == marked else marks, token)
        except UnwritableRows:
            self._unsure = None
            raise
        self._unsure = None
        self._marked = marks
        return rows

    def _open(self, now_ns: int) -> LiveStore:
        found = recover(self._place, now_ns, self._limits)
        if found.shard:
            self._log.warning(f"{found.shard.path.name}: recovered: its collector had been killed")
        if found.problem:
            self._log.error(f"left behind and damaged, set aside: {found.problem}")
        if self._unsure:
            if self._unsure[0] == found.token:
                self._backlog.remove(self._unsure[1])  # that commit failed only after it was one
            self._unsure = self._marked = None
        if self._marked is None:
            self._marked = recall(self._place.folder, self._place.node)
        if self._instance is None:
            self._instance = open_instance(self._limits, self._place.spill)
        return LiveStore(self._place, now_ns, self._limits, self._marked, self._instance)

    def _stop_writing(self, error: StoreError) -> None:
        self._leave_store()
        self._retry_at_ns = self._monotonic_ns() + _RETRY_NS
        if self.problem is None:
            held = format_bytes(self._backlog.most_bytes)
            self._log.error(f"not writing: {error}; the newest {held} of rows are held in memory")
        self.problem = str(error)

    def _leave_store(self) -> None:
        """Close the store and its database: after a failed write that takes no more."""
        if self._store:
            self._store.close()
        if self._instance:
            self._instance.close()
        self._store = self._instance = None
