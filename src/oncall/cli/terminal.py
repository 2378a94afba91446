"""How wide what is printed may be."""

from __future__ import annotations

import sys
from shutil import get_terminal_size

WIDTH = 80  # columns, where no terminal says: a pipe, a file, a serial console of size 0


def terminal_width(most: int | None = None) -> int:
    """The columns of the terminal on stdout, at most `most`: `COLUMNS` if set, else its own.

    WIDTH if stdout is no terminal, so that a file never depends on who wrote it."""
    if not sys.stdout.isatty():
        return WIDTH
    columns = get_terminal_size((WIDTH, 24)).columns
    return columns if most is None else min(columns, most)
