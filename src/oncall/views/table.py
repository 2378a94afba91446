"""Rows for a reader."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Table:
    """Rows of evidence or of a fact, as far as they are shown; `total` counts all."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    total: int
