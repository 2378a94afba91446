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
    """Make SIGINT stop the running query at once; raises KeyboardInterrupt on leaving.

    Python handles a signal only after the current C call, which a long query delays, and DuckDB
    may turn KeyboardInterrupt into its own error. The wakeup descriptor is written immediately.
    For the main thread only.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    caught: list[bytes] = []

    def watch() -> None:
        with os.fdopen(reading, "rb", buffering=0) as signals:
            while True:
                # DuckDB forgets an interrupt between two queries: repeat it until the end.
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
