"""The walls around rule SQL: no file, network, extension or setting, and limits on time and memory.

Once closed, a sandbox stays closed for the life of the connection; DuckDB offers no way back.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from types import TracebackType

import duckdb

FACT_TIME_LIMIT_S = 10.0
MEMORY_LIMIT_BYTES = 4 * 2**30


def close_sandbox(
    con: duckdb.DuckDBPyConnection, memory_limit_bytes: int = MEMORY_LIMIT_BYTES
) -> None:
    """Lock the connection's database down for running rules; closing it twice is harmless."""
    locked = con.execute("SELECT current_setting('lock_configuration')").fetchone()
    if locked and locked[0]:
        return
    memory = min(memory_limit_bytes, _physical_memory_bytes() * 6 // 10)
    con.execute(f"SET memory_limit = '{memory // 2**20}MiB'")
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


class TimeLimit:
    """Interrupts a connection's query that runs longer than `seconds`.

    DuckDB looks for an interrupt between vectors of rows, so a single function call on a single
    value can overrun.
    """

    def __init__(self, con: duckdb.DuckDBPyConnection, seconds: float) -> None:
        self._con = con
        self._timer = threading.Timer(seconds, self._interrupt)
        self._timer.daemon = True
        self.exceeded = False

    def _interrupt(self) -> None:
        self.exceeded = True
        self._con.interrupt()

    def __enter__(self) -> TimeLimit:
        self._timer.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._timer.cancel()
        # A timer that has just fired must be over before the next query can start.
        self._timer.join()


def _physical_memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
