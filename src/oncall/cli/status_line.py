"""One line on a terminal that says what is being done, erased at the end."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


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
