"""Ctrl-C while a query runs."""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb

_AGAIN_S = 0.1


@contextmanager
def interruptible(con: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Within, SIGINT stops the running query at once, and KeyboardInterrupt leaves at the end.

    Python handles a signal only when the C call it is in returns, which a long query puts off,
    and DuckDB may turn KeyboardInterrupt into an error of its own; the wakeup descriptor is
    written to at once and cannot be overlooked. For the main thread only.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    caught: list[bytes] = []

    def watch() -> None:
        with os.fdopen(reading, "rb", buffering=0) as signals:
            while True:
                # An interrupt between two queries is forgotten by DuckDB: go on until we leave.
                waiting = _AGAIN_S if caught else None
                if select.select([signals], [], [], waiting)[0]:
                    number = signals.read(1)
                    if not number:
                        return
                    caught.append(number)
                if bytes([signal.SIGINT]) in caught:
                    con.interrupt()

    before = signal.set_wakeup_fd(writing)
    watcher = threading.Thread(target=watch, name="interrupt", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(writing)
        watcher.join()
        if bytes([signal.SIGINT]) in caught:
            raise KeyboardInterrupt from None
