"""How wide what is printed may be; and one line that says what is being done, erased at the end."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from shutil import get_terminal_size
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from oncall.core.units import format_bytes

if TYPE_CHECKING:
    from oncall.fleet.gather import Progress
    from oncall.fleet.reach import Reach
    from oncall.fleet.transport import Transport

WIDTH = 80  # columns, where no terminal says: a pipe, a file, a serial console of size 0


def terminal_width(most: int | None = None) -> int:
    """The columns of the terminal on stdout, at most `most`: `COLUMNS` if set, else its own.

    WIDTH if stdout is no terminal, so that a file never depends on who wrote it."""
    if not sys.stdout.isatty():
        return WIDTH
    columns = get_terminal_size((WIDTH, 24)).columns
    return columns if most is None else min(columns, most)


Answer = TypeVar("Answer")
Asks: TypeAlias = "Callable[[Transport, Callable[[Progress], None]], Awaitable[Answer]]"


@contextmanager
def status_line() -> Iterator[Callable[[str], None]]:
    """A function that shows its text in place of the last one; on a terminal only."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return

    def show(text: str) -> None:
        # A line that wraps could not be erased.
        fitting = text[: shutil.get_terminal_size().columns - 1]
        print(f"\r\x1b[K{fitting}", end="", file=sys.stderr, flush=True)

    try:
        yield show
    finally:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


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
