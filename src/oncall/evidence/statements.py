"""How DuckDB is opened, and SQL that is executed again and again, parsed once in a process.

Of a relation over few rows parsing is a sixth of the time, and a console computes the same ones
with every snapshot.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb

_NESTED = re.compile(r'"exception_message":"((?:[^"\\]|\\.)*)"')  # an error of another thread
MOST_KEPT = 1000  # texts: three times the relations and facts that ship

_kept: dict[str, tuple[duckdb.Statement, ...]] = {}


def connect(**config: str) -> duckdb.DuckDBPyConnection:
    """A database in memory. Nothing is downloaded or loaded behind our back; a misspelt table is an
    error, never a Python variable that happens to have its name."""
    sealed = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
    con = duckdb.connect(":memory:", config={**sealed, **config})
    # DuckDB draws a progress bar on stdout wherever the program is no file (`python -c`).
    con.execute("SET python_enable_replacements = false; SET enable_progress_bar = false")
    return con


def execute(
    con: duckdb.DuckDBPyConnection,
    sql: str,
    parameters: Sequence[Any] | Mapping[str, Any] | None = None,
) -> duckdb.DuckDBPyConnection:
    """What `con.execute` does. Of several statements the last one takes the parameters."""
    parsed = _kept.get(sql)
    if parsed is None:
        if len(_kept) >= MOST_KEPT:
            _kept.clear()
        parsed = _kept[sql] = tuple(con.extract_statements(sql))
    for statement in parsed[:-1]:
        con.execute(statement)
    return con.execute(parsed[-1], parameters)


def quoted(path: Path) -> str:
    """The path inside a SQL string; absolute, as `md:x` alone would name another kind of store."""
    return str(path.absolute()).replace("'", "''")


def reason(error: BaseException) -> str:
    """One line that says what went wrong, without DuckDB's sentences about itself."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    text = str(error).rpartition("Original error: ")[2].strip()
    if nested := _NESTED.search(text):
        text = nested[1].replace('\\"', '"')
    return next(iter(text.splitlines()), type(error).__name__)
