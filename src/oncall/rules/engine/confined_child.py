"""The process that computes facts with limits: asked through a pipe, it answers, or it dies.

Its memory is bounded by the operating system, and so is its time: a question that is not answered
in time ends the process, whether or not anybody waits for it still.
"""

from __future__ import annotations

import pickle
import resource
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from oncall.evidence.columns import ColumnData, create_table_sql, insert
from oncall.evidence.table import Column
from oncall.rules.engine.sandbox import close_sandbox, compute

MOST_ROWS = 1_000_000  # of one answer
MOST_BYTES = 32 * 2**20  # of one answer: a finding needs far less, and nobody reads more
_AT_ONCE = 2_048


@dataclass(frozen=True)
class Ask:
    """A question: one of `_ANSWERS`, with its arguments, and how long it may take."""

    what: str
    arguments: tuple[Any, ...]
    limit_s: float


@dataclass(frozen=True)
class Answer:
    """`value`, if `failed` is empty; else what DuckDB says. `limit`: which limit was met."""

    value: Any = None
    failed: str = ""
    limit: str = ""  # memory, rows


class _TooMuch(Exception):
    """More rows or bytes than an answer may have."""


def _table(
    con: duckdb.DuckDBPyConnection,
    name: str,
    columns: Sequence[Column],
    data: Mapping[str, ColumnData],
) -> None:
    con.execute(create_table_sql(name, columns))
    insert(con, name, columns, data)


def _query(
    con: duckdb.DuckDBPyConnection, sql: str, values: Sequence[Any] | Mapping[str, Any]
) -> list[bytes]:
    """The rows, a pickle for some of them at a time."""
    found = con.execute(sql, values)
    parts: list[bytes] = []
    rows = size = 0
    while part := found.fetchmany(_AT_ONCE):
        parts.append(pickle.dumps(part, pickle.HIGHEST_PROTOCOL))
        rows, size = rows + len(part), size + len(parts[-1])
        if rows > MOST_ROWS or size > MOST_BYTES:
            raise _TooMuch
    return parts


def _forget(con: duckdb.DuckDBPyConnection) -> None:
    """Drop everything that was handed over or computed."""
    tables = con.execute("SELECT database_name, table_name FROM duckdb_tables()").fetchall()
    for database, name in tables:
        con.execute(f'DROP TABLE "{database}"."{name}"')


_ANSWERS: dict[str, Callable[..., Any]] = {
    "table": _table,
    "compute": compute,
    "query": _query,
    "forget": _forget,
}


def _answer(con: duckdb.DuckDBPyConnection, ask: Ask) -> Answer:
    signal.setitimer(signal.ITIMER_REAL, ask.limit_s)  # nothing handles SIGALRM, so it kills
    try:
        return Answer(_ANSWERS[ask.what](con, *ask.arguments))
    except (duckdb.OutOfMemoryException, MemoryError) as error:
        return Answer(failed=str(error) or "out of memory", limit="memory")
    except duckdb.Error as error:
        return Answer(failed=str(error) or "failed")
    except _TooMuch:
        return Answer(failed="too many rows", limit="rows")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _limit(memory_bytes: int) -> None:
    """What is mapped now, and `memory_bytes` more; and no file is written, no core left."""
    mapped_pages = int(Path("/proc/self/statm").read_text().split()[0])
    most_bytes = mapped_pages * resource.getpagesize() + memory_bytes
    resource.setrlimit(resource.RLIMIT_AS, (most_bytes, most_bytes))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def main() -> None:
    """Answer until nobody asks."""
    from multiprocessing.connection import Connection  # this module is read without a process, too

    connection, memory_bytes = Connection(int(sys.argv[1])), int(sys.argv[2])
    con = duckdb.connect(":memory:", config={"threads": "2"})
    con.execute("SET errors_as_json = true")
    close_sandbox(con, memory_bytes)
    _limit(memory_bytes)
    while True:
        try:
            ask = connection.recv()
        except EOFError:
            return
        connection.send(_answer(con, ask))
