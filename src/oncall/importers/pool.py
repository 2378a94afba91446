"""Reading many or large files on all cores."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from oncall.core.errors import BadInput
from oncall.importers.so_far import count_in, have_read, shared

if TYPE_CHECKING:
    from multiprocessing.sharedctypes import Synchronized

_QUIETLY = "ignore:resource_tracker:UserWarning"
Share = TypeVar("Share", Path, list[str])
Result = TypeVar("Result")


def on_cores(
    read: Callable[[Share], Result], shares: Sequence[Share], most: int, place: str, what: str
) -> Iterator[Result]:
    """What each share gives, in their order, read by `most` processes or one a core; with fewer
    than two in this one. Raises BadInput at `place` if one dies that read `what`."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    workers = min(cores or 1, most)
    if workers < 2:
        yield from map(read, shares)
        return
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool
    from multiprocessing import resource_tracker

    # It wants the file of stderr, which a console has not, and complains on the terminal of what
    # readers leave that were ended.
    sys.warnoptions.append(_QUIETLY)
    with redirect_stderr(None):
        resource_tracker.ensure_running()
    sys.warnoptions.remove(_QUIETLY)

    # Spawned, not forked: a database with threads lives in this process.
    context = multiprocessing.get_context("spawn")
    try:
        with ProcessPoolExecutor(workers, context, _begin, (shared(context),)) as pool:
            with _held_interrupts():
                read_shares = pool.map(read, shares)
            for share, result in zip(shares, read_shares, strict=True):
                have_read([share] if isinstance(share, Path) else share)
                yield result
    except BrokenProcessPool as error:
        problem = f"a process that read {what} was killed: out of memory?"
        raise BadInput(place, problem) from error


@contextmanager
def _held_interrupts() -> Iterator[None]:
    """Ctrl-C waits until the processes are started, which do not hear it before they are ready."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin(number: Synchronized[int] | None) -> None:
    """In a process that reads: it counts, and Ctrl-C ends it at once, also one that came while it
    started."""
    count_in(number)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A console that is left, and what is killed, ends without a word to these processes."""
    from multiprocessing import parent_process

    if parent := parent_process():
        parent.join()
        os._exit(1)
