"""Text in the columns of a terminal, where a Chinese or Japanese character takes two."""

from __future__ import annotations

from rich.cells import cell_len, set_cell_size

from oncall.core.printable import harmless

__all__ = ["cell_len", "cut", "padded"]


def cut(text: str, columns: int) -> str:
    """`text` harmless on a line, ended by `…` if it needs more than `columns`."""
    text = harmless(text).replace("\n", " ")
    if cell_len(text) <= columns:
        return text
    return set_cell_size(text, max(columns - 1, 0)).rstrip() + "…" if columns > 0 else ""


def padded(text: str, columns: int, right: bool = False) -> str:
    """`text` with spaces up to `columns`, before it if it stands at the right."""
    spaces = " " * max(columns - cell_len(text), 0)
    return spaces + text if right else text + spaces
