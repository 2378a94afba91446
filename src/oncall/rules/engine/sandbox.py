"""The walls around rule SQL: no file, network, extension or setting, and limits on time and memory.

Once closed, a sandbox stays closed for the life of the connection; DuckDB offers no way back.
Facts are computed by a `Computer`: `InProcess` on the incident's own connection, for rulebooks that
were reviewed; `Confined` (oncall.rules.engine.confined) in a process with limits, for all others.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Protocol

import duckdb

from oncall.core.errors import OncallError
from oncall.core.units import format_duration
from oncall.evidence.incident import Incident
from oncall.evidence.statements import execute

FACT_TIME_LIMIT_S = 10.0
MEMORY_LIMIT_BYTES = 4 * 2**30
_LOOK_EVERY_S = 0.05
# What DuckDB needs even of few rows: without these an expression, a filter or an EXISTS may take
# rows times rows. All others find a better order or layout, which costs more than it saves.
_WORTH_ON_FEW_ROWS = (
    "cte_inlining",
    "deliminator",
    "expression_rewriter",
    "filter_pushdown",
    "unnest_rewriter",
    "unused_columns",
)


def close_sandbox(
    con: duckdb.DuckDBPyConnection,
    memory_limit_bytes: int = MEMORY_LIMIT_BYTES,
    *,
    few_rows: bool = False,
    bounded: bool = False,
) -> None:
    """Lock the connection's database down for running rules; closing it twice is harmless.

    `few_rows` saves what only pays on many: a second thread, and the search for a better plan.
    `bounded`: the memory of tables is bounded already, and what does not fit has its place.
    """
    locked = con.execute("SELECT current_setting('lock_configuration')").fetchone()
    if locked and locked[0]:
        return
    if not bounded:
        memory_bytes = within_this_machine(memory_limit_bytes)
        con.execute(f"SET memory_limit = '{memory_bytes // 2**20}MiB'")
        with suppress(duckdb.Error):
            # A runaway fact must meet the memory limit, not fill the disk.
            con.execute("SET temp_directory = ''")
    if few_rows:
        con.execute("SET threads = 1")
        ((others,),) = con.execute(
            "SELECT string_agg(name, ',') FROM duckdb_optimizers() "
            "WHERE NOT list_contains(?, name)",
            [_WORTH_ON_FEW_ROWS],
        ).fetchall()
        con.execute(f"SET disabled_optimizers = '{others}'")
    con.execute(
        "SET enable_external_access = false;"
        "SET python_enable_replacements = false;"
        "SET autoinstall_known_extensions = false;"
        "SET autoload_known_extensions = false;"
        # A sentence's `fact.column` is the row that the fact's ORDER BY puts first.
        "SET preserve_insertion_order = true;"
        # Else a time is written as the machine's time zone has it, and a replay elsewhere differs.
        "SET TimeZone = 'UTC';"
        "SET lock_configuration = true"
    )


class Watchdog:
    """Interrupts a connection's query that runs too long.

    One thread that looks every now and then, because starting a timer for each fact would cost
    as much as the fact. DuckDB heeds an interrupt between vectors of rows, so a single function
    call on a single value can overrun.
    """

    def __init__(self, con: duckdb.DuckDBPyConnection) -> None:
        self._con = con
        self._lock = threading.Lock()
        self._deadline: float | None = None
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self.barked = False

    @contextmanager
    def limit(self, seconds: float) -> Iterator[None]:
        """Within it, queries are interrupted after `seconds`; `barked` says if that happened."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="fact-watchdog", daemon=True)
            self._thread.start()
        with self._lock:
            self.barked = False
            self._deadline = time.monotonic() + seconds
        try:
            yield
        finally:
            with self._lock:
                self._deadline = None

    def close(self) -> None:
        """End the thread; no interrupt comes after this."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self) -> None:
        while not self._closed.wait(_LOOK_EVERY_S):
            # Under the lock, an interrupt can only meet the query that it is meant for.
            with self._lock:
                if self._deadline is not None and time.monotonic() > self._deadline:
                    self.barked = True
                    self._con.interrupt()


def within_this_machine(memory_bytes: int) -> int:
    """So much memory, or what a small machine can spare."""
    return min(memory_bytes, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 6 // 10)


# -------------------------------------------------------------- computing facts


class QueryFailed(OncallError):
    """A query failed, or met a limit. `details` is all that DuckDB says about it."""

    def __init__(self, message: str, details: str = "") -> None:
        self.details = details or message
        super().__init__(message)


class Computer(Protocol):
    """What computes the facts of rulebooks. All raises QueryFailed."""

    def provide(self, names: Iterable[str]) -> None:
        """Make evidence tables and relations readable. Raises MissingEvidence."""

    def compute(
        self, fact: str, select: str, values: Mapping[str, Any]
    ) -> tuple[tuple[str, ...], int]:
        """Keep a fact's rows as a temporary table; returns its columns and how many rows."""

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows of a query about facts."""

    def drop(self, facts: Iterable[str]) -> None:
        """Forget facts."""

    def close(self) -> None:
        """Free what computing needed."""


def compute(
    con: duckdb.DuckDBPyConnection, fact: str, select: str, values: Mapping[str, Any]
) -> tuple[tuple[str, ...], int]:
    """Keep a SELECT's rows as a temporary table; returns its columns and how many rows.

    In a transaction that only reads, which allows temporary tables and no other write.
    """
    try:
        made = execute(
            con,
            f'BEGIN TRANSACTION READ ONLY; CREATE TEMP TABLE "{fact}" AS\n{select}',
            dict(values),
        )
        ((total,),) = made.fetchall()
        con.commit()
    except BaseException:
        # Where it was BEGIN that failed, there is nothing to take back.
        with suppress(duckdb.Error):
            con.rollback()
        raise
    described = con.execute(f'SELECT * FROM "{fact}" LIMIT 0').description or []
    return tuple(column[0] for column in described), total


class InProcess:
    """Computes on the incident's own connection: fast, and for a fact that was reviewed."""

    def __init__(self, incident: Incident, time_limit_s: float = FACT_TIME_LIMIT_S) -> None:
        self._incident = incident
        self._time_limit_s = time_limit_s
        self._watchdog = Watchdog(incident.con)

    def provide(self, names: Iterable[str]) -> None:
        self._incident.require(names)

    def compute(
        self, fact: str, select: str, values: Mapping[str, Any]
    ) -> tuple[tuple[str, ...], int]:
        with self._failing():
            return compute(self._incident.con, fact, select, values)

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._failing():
            return execute(self._incident.con, sql, values).fetchall()

    def drop(self, facts: Iterable[str]) -> None:
        self._incident.con.execute(
            ";".join(f'DROP TABLE IF EXISTS temp."{fact}"' for fact in facts)
        )

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            with self._watchdog.limit(self._time_limit_s):
                yield
        except duckdb.Error as error:
            raise QueryFailed(self._reason(error)) from error

    def _reason(self, error: duckdb.Error) -> str:
        if self._watchdog.barked:
            return took_too_long(self._time_limit_s)
        if isinstance(error, duckdb.OutOfMemoryException):
            return "the fact needs more memory than rules may use"
        return str(error).strip().splitlines()[0]

    def close(self) -> None:
        self._watchdog.close()


def took_too_long(limit_s: float) -> str:
    """What is said of a fact that was stopped."""
    return f"the fact took longer than {format_duration(limit_s * 1e9)} and was stopped"
