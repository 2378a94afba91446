"""A gather that serves one command and then ends, as those of `oncall diagnose` and `probe` do."""

from __future__ import annotations

import asyncio
import signal
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from oncall.fleet.branch import Tree
from oncall.fleet.gather import AT_ONCE, Gather, Progress, Window
from oncall.fleet.transport import Transport


@asynccontextmanager
async def one_shot_gather(
    transport: Transport,
    hosts: Sequence[str],
    window: Window | None = None,
    *,
    patience_s: float = 20.0,
    at_once: int = AT_ONCE,
    tree: Tree | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> AsyncIterator[Gather]:
    """A Gather that keeps its answers in a temporary folder: read them before leaving it.

    `window`: None for unbounded; the other parameters are Gather's.
    """
    with tempfile.TemporaryDirectory(prefix="oncall-gather-") as folder:
        async with Gather(
            transport,
            hosts,
            window or Window(),
            Path(folder),
            patience_s=patience_s,
            at_once=at_once,
            tree=tree,
            progress=progress,
        ) as gather:
            yield gather


@contextmanager
def stopped_by_interrupt(gather: Gather) -> Iterator[None]:
    """Make the first Ctrl-C stop the gather; the second interrupts."""
    loop = asyncio.get_running_loop()
    if threading.current_thread() is not threading.main_thread():
        yield  # which hears no signals
        return
    before = signal.getsignal(signal.SIGINT)

    def stop(number: int, frame: object) -> None:  # noqa: ARG001
        signal.signal(signal.SIGINT, before)
        loop.call_soon_threadsafe(gather.stop)

    # Not the loop's own handlers: they take the wakeup descriptor from `interrupts_reported`.
    signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
