"""The walls around rule SQL: no file, network, extension or setting, and limits on time and memory.

Once closed, a sandbox stays closed for the life of the connection; DuckDB offers no way back.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import duckdb

FACT_TIME_LIMIT_S = 10.0
MEMORY_LIMIT_BYTES = 4 * 2**30
_LOOK_EVERY_S = 0.05


def close_sandbox(
    con: duckdb.DuckDBPyConnection,
    memory_limit_bytes: int = MEMORY_LIMIT_BYTES,
    *,
    few_rows: bool = False,
) -> None:
    """Lock the connection's database down for running rules; closing it twice is harmless.

    `few_rows` saves what only pays on many: a second thread, and the search for an order of joins.
    """
    locked = con.execute("SELECT current_setting('lock_configuration')").fetchone()
    if locked and locked[0]:
        return
    memory = min(memory_limit_bytes, _physical_memory_bytes() * 6 // 10)
    con.execute(f"SET memory_limit = '{memory // 2**20}MiB'")
    if few_rows:
        con.execute("SET threads = 1; SET disabled_optimizers = 'join_order'")
    with suppress(duckdb.Error):
        # A runaway fact must meet the memory limit, not fill the disk.
        con.execute("SET temp_directory = ''")
    con.execute(
        "SET enable_external_access = false;"
        "SET python_enable_replacements = false;"
        "SET autoinstall_known_extensions = false;"
        "SET autoload_known_extensions = false;"
        # A sentence's `fact.column` is the row that the fact's ORDER BY puts first.
        "SET preserve_insertion_order = true;"
        "SET lock_configuration = true"
    )


class Watchdog:
    """Interrupts a connection's query that runs too long.

    One thread that looks every now and then, because starting a timer for each fact would cost
    as much as the fact. DuckDB heeds an interrupt between vectors of rows, so a single function
    call on a single value can overrun.
    """

    def __init__(self, con: duckdb.DuckDBPyConnection) -> None:
        self._con = con
        self._lock = threading.Lock()
        self._deadline: float | None = None
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self.barked = False

    @contextmanager
    def limit(self, seconds: float) -> Iterator[None]:
        """Within it, queries are interrupted after `seconds`; `barked` says if that happened."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="fact-watchdog", daemon=True)
            self._thread.start()
        with self._lock:
            self.barked = False
            self._deadline = time.monotonic() + seconds
        try:
            yield
        finally:
            with self._lock:
                self._deadline = None

    def close(self) -> None:
        """End the thread; no interrupt comes after this."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self) -> None:
        while not self._closed.wait(_LOOK_EVERY_S):
            # Under the lock, an interrupt can only meet the query that it is meant for.
            with self._lock:
                if self._deadline is not None and time.monotonic() > self._deadline:
                    self.barked = True
                    self._con.interrupt()


def _physical_memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
