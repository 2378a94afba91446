"""Ctrl-C at any moment of a command: it ends as interrupted, whatever C code makes of it."""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from oncall.core.errors import ExitCode

if TYPE_CHECKING:
    import duckdb

_AGAIN_S = 0.1
_INTERRUPT = bytes([signal.SIGINT])


@contextmanager
def interrupts_reported() -> Iterator[None]:
    """Within, Ctrl-C raises KeyboardInterrupt; and so does leaving with any other error after one.

    C code that calls back into Python may lose the exception: DuckDB makes `Query interrupted` of
    it, an import a missing name. For the main thread only.
    """
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    ignored = signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    if not ignored:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    except (Exception, SystemExit) as error:
        failed = getattr(error, "code", ExitCode.BUG) in (ExitCode.BAD_INPUT, ExitCode.BUG)
        if failed and _INTERRUPT in _read(reading):
            raise KeyboardInterrupt from None
        raise
    finally:
        signal.set_wakeup_fd(before)
        os.close(reading)
        os.close(writing)


def _read(reading: int) -> bytes:
    with suppress(BlockingIOError):
        return os.read(reading, 4096)
    return b""


class Interruptible:
    """Make SIGINT stop the running query at once; raises KeyboardInterrupt on leaving.

    Python handles a signal only after the current C call, which a long query delays, and DuckDB
    may turn KeyboardInterrupt into its own error. The wakeup descriptor is written immediately.
    For the main thread only.
    """

    def __init__(self, con: duckdb.DuckDBPyConnection) -> None:
        self._con = con
        self._caught: list[bytes] = []

    def __enter__(self) -> None:
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._writing, False)
        self._before = signal.set_wakeup_fd(self._writing)
        self._watcher = threading.Thread(target=self._watch, name="interrupt", daemon=True)
        self._watcher.start()

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(self._before)
        os.close(self._writing)
        self._watcher.join()
        if _INTERRUPT in self._caught:
            raise KeyboardInterrupt from None

    def _watch(self) -> None:
        with os.fdopen(self._reading, "rb", buffering=0) as signals:
            while True:
                # DuckDB forgets an interrupt between two queries: repeat it until the end.
                waiting = _AGAIN_S if self._caught else None
                if select.select([signals], [], [], waiting)[0]:
                    number = signals.read(1)
                    if not number:
                        return
                    self._caught.append(number)
                if _INTERRUPT in self._caught:
                    self._con.interrupt()
