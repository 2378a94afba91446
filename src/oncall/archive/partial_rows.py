"""The rows of one group of files: what each worker computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from oncall.archive.place import connection

Rows = list[tuple[Any, ...]]
Select = Callable[[Sequence[str]], str]  # of the addresses of files


def computed_here(sql: str, files: Sequence[str], threads: int | None = None) -> Rows:
    """The rows of one group, by so many threads; all cores by default. Raises duckdb.Error if a
    file cannot be read."""
    with connection(files) as con:
        if threads is not None:
            con.execute(f"SET threads = {threads}")
        return con.execute(sql).fetchall()
