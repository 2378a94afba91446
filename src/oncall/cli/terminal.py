"""The terminal of a command: how wide what is printed may be, one line that says what is being
done, erased at the end, and Ctrl-C at any moment, whatever C code makes of it."""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from shutil import get_terminal_size
from textwrap import TextWrapper
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from oncall.core.errors import ExitCode
from oncall.core.units import format_bytes

if TYPE_CHECKING:
    import duckdb

    from oncall.fleet.gather import Progress
    from oncall.fleet.reach import Reach
    from oncall.fleet.transport import Transport
    from oncall.importers.so_far import ReadSoFar

WIDTH = 80  # columns, where no terminal says: a pipe, a file, a serial console of size 0


def terminal_width(most: int | None = None) -> int:
    """The columns of the terminal on stdout, at most `most`: `COLUMNS` if set, else its own.

    WIDTH if stdout is no terminal, so that a file never depends on who wrote it."""
    if not sys.stdout.isatty():
        return WIDTH
    columns = get_terminal_size((WIDTH, 24)).columns
    return columns if most is None else min(columns, most)


def complain(lines: Iterable[str]) -> None:
    """Print lines on stderr; on a terminal they break between words, not within."""
    if sys.stderr.isatty():
        wrap = TextWrapper(
            get_terminal_size((WIDTH, 24)).columns, break_long_words=False, break_on_hyphens=False
        )
        lines = ("\n".join(wrap.wrap(line)) for line in lines)
    print("\n".join(lines), file=sys.stderr)


Answer = TypeVar("Answer")
Said: TypeAlias = "str | Callable[[], str]"
_DRAW_EVERY_S = 0.5
Asks: TypeAlias = "Callable[[Transport, Callable[[Progress], None]], Awaitable[Answer]]"


@contextmanager
def status_line() -> Iterator[Callable[[Said], None]]:
    """A function that shows its text in place of the last one; on a terminal only. A text that
    changes by itself is asked for twice a second."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    said: Said = ""
    ended, drawing = threading.Event(), threading.Lock()

    def draw() -> None:
        with drawing:
            if ended.is_set():
                return
            text = said if isinstance(said, str) else said()
            # A line that wraps could not be erased.
            fitting = text[: shutil.get_terminal_size().columns - 1]
            print(f"\r\x1b[K{fitting}", end="", file=sys.stderr, flush=True)

    def show(text: Said) -> None:
        nonlocal said
        said = text
        draw()

    def draw_again() -> None:
        while not ended.wait(_DRAW_EVERY_S):
            if not isinstance(said, str):
                draw()

    threading.Thread(target=draw_again, name="status line", daemon=True).start()
    try:
        yield show
    finally:
        with drawing:
            ended.set()
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def reading_phrase(paths: str, so_far: ReadSoFar) -> str:
    """What is read, and how far that is."""
    return ": ".join(filter(None, (f"reading {paths}", so_far.phrase())))


def gather_phrase(at: Progress) -> str:
    """How far a gather is."""
    answered = f"{at.phase}: {at.answered} of {at.asked} nodes, {format_bytes(at.bytes)}"
    return f"{answered} (Ctrl-C: continue with these)"


def over_nodes(reach: Reach, asks: Asks[Answer]) -> Answer:
    """What `asks(transport, progress)` has the nodes answer, with a progress line."""
    import asyncio

    from oncall.fleet.transport import opened

    async def ask() -> Answer:
        with status_line() as show:
            async with opened(reach.transport) as transport:
                return await asks(transport, lambda at: show(gather_phrase(at)))

    return asyncio.run(ask())


def report_lost(gateways: Mapping[str, str]) -> None:
    """Say on stderr which gateways failed: their nodes were asked, but directly."""
    from oncall.fleet.outcome import lost_gateways_phrases

    for phrase in lost_gateways_phrases(gateways):
        print(f"oncall: {phrase}", file=sys.stderr)


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
