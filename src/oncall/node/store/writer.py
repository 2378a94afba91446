"""The live store: the one file a collector writes, and how it becomes a sealed shard.

    live.duckdb --commit every few seconds--> --seal--> <node>.<start_ns>-<end_ns>.duckdb

DuckDB locks the live file even against readers, so evidence is handed on by sealing: checkpoint,
close, fsync, rename. A sealed shard never changes. What a killed collector leaves behind is
recovered by the next one: all that was committed is there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import duckdb

from oncall import __version__
from oncall.core.errors import OncallError
from oncall.core.units import format_bytes
from oncall.evidence.columns import create_table_sql, insert, no_rows_sql
from oncall.evidence.schema import BY_NAME, SCHEMA_VERSION, TABLES
from oncall.evidence.statements import quoted, reason
from oncall.node.store import bookmarks
from oncall.node.store.batch import Batch, joined
from oncall.node.store.catalog import LIVE_NAME, Shard, shard_name
from oncall.node.store.database import DEFAULT_LIMITS, Limits, connect
from oncall.node.store.retention import BootClock, read_boot_clock, record

_BLOCK_BYTES = 65_536
# Rows of one table that a commit writes compressed and at their place, without the log. Small, so
# that of a commit few are left over: a checkpoint writes again what follows a group that is not
# full.
_ROW_GROUP = 4_096
_UNWRITABLE = (duckdb.DataError, ValueError, OverflowError, TypeError)  # the rows' fault
_OF_THE_MACHINE = ("no space left", "permission denied", "read-only file", "too many open", "quota")


# The token of the last commit, so that a commit that failed half way is neither lost nor doubled.
_FIRST_LIVE = "SET search_path = 'live,memory'"
_COMMITS = "CREATE TABLE commits AS SELECT NULL::VARCHAR AS token"


class StoreError(OncallError):
    """Evidence cannot be written now: the disk is full, the folder read-only or gone."""


class UnwritableRows(OncallError):
    """Rows hold what no column can, as garbage in a ring may; the store is as before them."""


@dataclass(frozen=True)
class Place:
    """Where a store lives: its folder, its node, and the free space it leaves to others; and the
    clock by which its shards age."""

    folder: Path
    node: str
    keep_free_bytes: int = 0
    boot_clock: BootClock = read_boot_clock

    @property
    def live(self) -> Path:
        return self.folder / LIVE_NAME

    @property
    def live_log(self) -> Path:
        """DuckDB's write-ahead log beside it."""
        return self.folder / f"{LIVE_NAME}.wal"

    @property
    def spill(self) -> Path:
        """Where DuckDB puts what its memory limit does not hold."""
        return self.folder / "spill"

    def check_free(self) -> None:
        """Raise StoreError if less is free than is left to others, or the folder is gone."""
        try:
            state = os.statvfs(self.folder)
        except OSError as error:
            raise StoreError(f"{self.folder}: {error.strerror}") from error
        free_bytes = state.f_bavail * state.f_frsize
        if free_bytes < self.keep_free_bytes:
            raise StoreError(
                f"{self.folder}: {format_bytes(free_bytes)} free, "
                f"{format_bytes(self.keep_free_bytes)} are kept for others (keep_free)"
            )


@dataclass(frozen=True)
class Span:
    """From the earliest to the latest instant that the wall clock showed, Unix time in ns."""

    first_ns: int
    last_ns: int

    def with_instant(self, at_ns: int) -> Span:
        """The span that reaches to that instant, too; none is before 1970."""
        at_ns = max(0, at_ns)
        return Span(min(self.first_ns, at_ns), max(self.last_ns, at_ns))


def open_instance(limits: Limits, spill_to: Path | None = None) -> duckdb.DuckDBPyConnection:
    """A database for live stores, one after the other: opening one takes longer than sealing a
    quiet store. What a live store lacks of the evidence tables is found there, as empty views."""
    con = connect(limits, spill_to)
    empty = (f"CREATE VIEW {each.name} AS {no_rows_sql(each.columns)}" for each in TABLES)
    con.execute(";".join(empty))
    return con


class LiveStore:
    """The live store, open for writing. One thread writes; others read through `cursor`.

    A table is made when its first rows come: most nodes fill a quarter of them, and each costs
    whoever opens the shard.
    """

    def __init__(
        self,
        place: Place,
        now_ns: int,
        limits: Limits = DEFAULT_LIMITS,
        marks: Mapping[str, bookmarks.Bookmark] | None = None,
        instance: duckdb.DuckDBPyConnection | None = None,
    ) -> None:
        """Open a new live store. Raises StoreError if it cannot be written.

        `marks` are the bookmarks of the store before this one. They hold until the first commit, so
        that every store has them, however soon its collector is killed. `instance`: as
        `open_instance` makes it, with no other store in it; one of its own if there is none.
        """
        self.place = place
        self.tables: frozenset[str] = frozenset()  # that are committed
        self._span = Span(now_ns, now_ns)
        self._con = (instance or open_instance(limits, place.spill)).cursor()
        try:
            _attach(self._con, place)
            self._begin(marks or {})
        except BaseException:
            self._con.close()
            raise

    def _begin(self, marks: Mapping[str, bookmarks.Bookmark]) -> None:
        try:
            self._con.execute(
                f"{_FIRST_LIVE}; BEGIN; {bookmarks.CREATE}; {_COMMITS}; "
                "CREATE TABLE meta AS SELECT "
                f"{SCHEMA_VERSION}::INTEGER AS schema_version, '{__version__}' AS oncall_version, "
                f"version() AS duckdb_version, '{self.place.node}' AS node, "
                f"{self._span.first_ns}::BIGINT AS started_ns, NULL::BIGINT AS sealed_ns"
            )
            bookmarks.write(self._con, marks)
            self._con.execute("COMMIT")
        except duckdb.Error as error:
            raise StoreError(f"{self.place.live}: {reason(error)}") from error

    def write(
        self,
        batches: Sequence[Batch],
        marks: Mapping[str, bookmarks.Bookmark] | None = None,
        token: str = "",
    ) -> int:
        """Commit all rows at once, and the bookmarks `marks` with them; returns how many rows.

        Raises UnwritableRows if nothing was committed and that is the rows' fault. After a
        StoreError the store is of no more use: close it, and `recover`. Whether the rows are in it
        is only known then: a checkpoint or an fsync may have failed behind the commit. They are if
        `Recovered.token` is the `token` that was given for them.
        """
        try:
            self._con.execute("BEGIN")
            self._con.execute("UPDATE commits SET token = ?", [token])
            tables = self._insert(batches)
            if marks is not None:
                bookmarks.write(self._con, marks)
            self._con.execute("COMMIT")
        except _UNWRITABLE as error:
            self._con.execute("ROLLBACK")
            raise UnwritableRows(reason(error)) from error
        except duckdb.Error as error:
            raise StoreError(f"{self.place.live}: {reason(error)}") from error
        self.tables |= tables
        return sum(batch.rows for batch in batches)

    def why_unwritable(self, batches: Sequence[Batch]) -> UnwritableRows | None:
        """Whether these rows hold what no column can. Nothing is written; raises StoreError."""
        try:
            self._con.execute("BEGIN")
            self._insert(batches)
        except _UNWRITABLE as error:
            return UnwritableRows(reason(error))
        except duckdb.Error as error:
            raise StoreError(f"{self.place.live}: {reason(error)}") from error
        finally:
            with suppress(duckdb.Error):  # of a store that is of no more use
                self._con.execute("ROLLBACK")
        return None

    def _insert(self, batches: Sequence[Batch]) -> set[str]:
        """Insert the rows, into tables that are made where they are not there; returns these
        tables."""
        tables = set()
        for batch in joined(batches):
            columns = BY_NAME[batch.table].columns
            if batch.table not in self.tables:
                self._con.execute(create_table_sql(batch.table, columns))
            insert(self._con, batch.table, columns, batch.columns)
            tables.add(batch.table)
        return tables

    def saw(self, now_ns: int) -> None:
        """Rows of this instant are here: a clock that is set back must not leave them outside of
        the span in the shard's name."""
        self._span = self._span.with_instant(now_ns)

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """Another connection to the same store, for another thread; it sees what is committed."""
        cursor = self._con.cursor()
        cursor.execute(_FIRST_LIVE)
        return cursor

    def seal(
        self, now_ns: int, prepare: Callable[[duckdb.DuckDBPyConnection], object] | None = None
    ) -> Shard:
        """Make the store an immutable shard, named by its span; the store is closed then.

        `prepare` may add tables of its own first; what it raises leaves the evidence as it is and
        reaches the caller as `PrepareError` after sealing. Raises StoreError if it cannot seal.
        """
        failure: Exception | None = None
        if prepare is not None:
            try:
                prepare(self._con)
            except Exception as error:  # whatever it is, evidence comes first
                failure = error
                with suppress(duckdb.Error):  # unless it was in no transaction
                    self._con.execute("ROLLBACK")
        self.saw(now_ns)
        shard = _seal(self._con, self.place, self._span)
        self._con.close()
        if failure is not None:
            raise PrepareError(shard, failure)
        return shard

    def close(self) -> None:
        """Leave the live file as it is; the next collector recovers it."""
        with suppress(duckdb.Error):  # of a store that is of no more use
            self._con.execute("USE memory; DETACH live")
        self._con.close()


class PrepareError(Exception):
    """The shard is sealed, but without what `prepare` should have added."""

    def __init__(self, shard: Shard, cause: Exception) -> None:
        self.shard = shard
        super().__init__(f"{type(cause).__name__}: {reason(cause)}")


# ------------------------------------------------------------------- recovery


@dataclass(frozen=True)
class Recovered:
    """The outcome for a live store left behind: sealed, or set aside with why; and the token of
    the last commit in it."""

    shard: Shard | None = None
    token: str | None = None
    set_aside: tuple[Path, ...] = ()
    problem: str | None = None


def recover(place: Place, now_ns: int, limits: Limits = DEFAULT_LIMITS) -> Recovered:
    """Seal what a killed collector left behind, if anything.

    A log or a store that DuckDB cannot read keeps its name as `*.damaged`. Raises StoreError
    where the machine refuses (a full disk, no permission): then nothing is touched.
    """
    if not place.live.exists():
        # A log alone would be replayed into the next store, whose it is not.
        if not place.live_log.exists():
            return Recovered()
        return Recovered(set_aside=(_set_aside(place.live_log, now_ns),), problem=_LOG_ALONE)
    try:
        return _seal_left_over(place, limits)
    except _Damaged as damage:
        problem = str(damage)
    if place.live_log.exists():
        # Without its log a store is as it was at its last checkpoint.
        aside: tuple[Path, ...] = (_set_aside(place.live_log, now_ns),)
        problem = f"{aside[0].name}: {problem}"
        try:
            return replace(_seal_left_over(place, limits), set_aside=aside, problem=problem)
        except _Damaged:
            aside = (*aside, _set_aside(place.live, now_ns))
            return Recovered(set_aside=aside, problem=problem)
    aside = (_set_aside(place.live, now_ns),)
    return Recovered(set_aside=aside, problem=f"{aside[0].name}: {problem}")


_LOG_ALONE = "a write-ahead log without its store"


class _Damaged(Exception):
    """DuckDB cannot read the file, and never will."""


def _seal_left_over(place: Place, limits: Limits) -> Recovered:
    """Seal the live file as far as it was committed; no shard if it never held a row."""
    last_write_ns = max(
        path.stat().st_mtime_ns for path in (place.live, place.live_log) if path.exists()
    )
    con = connect(limits, place.spill)
    try:
        _attach(con, place)
        con.execute("USE live")
        if not con.execute("FROM duckdb_tables() WHERE table_name = 'meta'").fetchall():
            # Killed before its tables were committed.
            con.execute("USE memory; DETACH live")
            place.live.unlink()
            place.live_log.unlink(missing_ok=True)
            return Recovered()
        ((node, started_ns),) = con.execute("SELECT node, started_ns FROM meta").fetchall()
        theirs = Place(place.folder, node)
        token = _token(con)
        span = Span(started_ns, started_ns).with_instant(last_write_ns)
        return Recovered(_seal(con, theirs, span), token)
    except (duckdb.Error, ValueError) as error:
        raise _failure(place, error) from error
    finally:
        con.close()


def _token(con: duckdb.DuckDBPyConnection) -> str | None:
    """The token of the last commit; None in a store of an oncall that gave none."""
    if not con.execute("FROM duckdb_tables() WHERE table_name = 'commits'").fetchall():
        return None
    ((token,),) = con.execute("SELECT token FROM commits").fetchall()
    return str(token) if token else None


def _set_aside(path: Path, now_ns: int) -> Path:
    aside = path.with_name(f"{path.name}.{now_ns}.damaged")
    path.rename(aside)
    return aside


# -------------------------------------------------------------------- sealing


def _attach(con: duckdb.DuckDBPyConnection, place: Place) -> None:
    try:
        # Smaller blocks than DuckDB's default: half the size of a quiet node's shards, and no
        # larger others.
        con.execute(
            f"ATTACH '{quoted(place.live)}' AS live "
            f"(BLOCK_SIZE {_BLOCK_BYTES}, ROW_GROUP_SIZE {_ROW_GROUP})"
        )
    except duckdb.Error as error:
        raise _failure(place, error) from error


def _failure(place: Place, error: Exception) -> Exception:
    """StoreError where the machine refused, _Damaged where the file itself is wrong."""
    text = str(error).lower()
    if "conflicting lock" in text or any(word in text for word in _OF_THE_MACHINE):
        return StoreError(f"{place.live}: {reason(error)}")
    return _Damaged(reason(error))


def _seal(con: duckdb.DuckDBPyConnection, place: Place, span: Span) -> Shard:
    """Checkpoint, detach, fsync, rename, fsync the folder: after that it survives a power cut."""
    started_ns, end_ns = span.first_ns, span.last_ns
    path = place.folder / shard_name(place.node, started_ns, end_ns)
    while path.exists():  # a clock that was set back
        end_ns += 1
        path = place.folder / shard_name(place.node, started_ns, end_ns)
    try:
        con.execute("UPDATE meta SET started_ns = ?, sealed_ns = ?", [started_ns, end_ns])
        con.execute("CHECKPOINT live; USE memory; DETACH live")
        if place.live_log.exists():
            raise StoreError(f"{place.live}: DuckDB could not merge its log into it")
        _fsync(place.live)
        with suppress(OSError):  # a shard without its line is kept for longer, that is all
            # Before the rename: a line too many names nothing, and no shard lacks its own.
            record(place.folder, [path.name], place.boot_clock())
        place.live.rename(path)
        _fsync(place.folder)
    except (duckdb.Error, OSError) as error:
        raise StoreError(f"{place.live}: cannot seal: {reason(error)}") from error
    return Shard(started_ns, end_ns, place.node, path)


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
