"""An incident: one DuckDB holding the evidence of a job, in memory or saved as `*.oncall`."""

from __future__ import annotations

import shutil
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import chain, product
from pathlib import Path
from typing import Any

import duckdb

from oncall.core import room
from oncall.core.errors import (
    BadInput,
    MissingEvidence,
    OncallError,
    RelationFailed,
    UsageError,
    short_reason,
)
from oncall.evidence.bounds import Disbelief, strip_impossible
from oncall.evidence.columns import ColumnData, Words, create_table_sql, insert
from oncall.evidence.parameters import Replaced, select_of, values_of
from oncall.evidence.registry import all_relations
from oncall.evidence.relations import Relation
from oncall.evidence.saved import ROW_GROUP, copy_saved, write_saved
from oncall.evidence.schema import BY_NAME, TABLES
from oncall.evidence.statements import connect, execute, quoted, reason

__all__ = ["ColumnData", "Incident", "Words", "create_table_sql"]


class Incident:
    """The evidence of one job. Tables of the schema always exist; relations appear on `require`.

    Before a table is first read for a relation or a fact, its impossible values are removed
    (oncall.evidence.bounds); `disbelieved` lists them. A relation that cannot be computed is a
    RelationFailed for whoever requires it, or requires one that reads it; it is tried once, and
    `failures` lists those that failed.
    """

    def __init__(self, con: duckdb.DuckDBPyConnection, *, trusted: bool = False) -> None:
        """`trusted`: this process measured what the tables hold, so no value is looked at."""
        self.con = con
        self._ready: set[str] = set()
        self._views: set[str] = set()  # of those ready, the ones that are not stored
        # A view is planned anew in every query that reads it, which costs more than few rows do.
        # Only for evidence to which nothing is added any more.
        self.stores_views = False
        self._loose = 0  # rows added since rows were compressed
        self._empty: dict[str, bool] = {}
        self._lacks: dict[str, list[tuple[str, ...]]] = {}  # of relations, by those tables
        self.interrupts: set[Callable[[], None]] = set()  # how to stop what computes beside `con`
        self._failed: dict[str, RelationFailed] = {}
        self._replaced: Replaced = {}
        self._trusted = trusted
        self._believed: set[str] = set()
        self._disbelieved: list[Disbelief] = []
        self._overflow: tempfile.TemporaryDirectory[str] | None = None

    # ---------------------------------------------------------------- life

    @classmethod
    def empty(cls) -> Incident:
        """A new incident in memory, every table present and empty."""
        con = connect()
        con.execute("SET preserve_insertion_order = false")
        # In memory: texts as dictionaries are most of what it saves, for half of the time.
        con.execute("SET disabled_compression_methods = 'bitpacking,rle'")
        execute(con, _EVERY_TABLE)
        return cls(con)

    @classmethod
    def in_place(
        cls, path: Path, believed: Iterable[str] = (), memory_bytes: int | None = None
    ) -> Incident:
        """A saved incident, its large tables read where they are: views that any narrowing may
        replace (oncall.evidence.window). The file is held, and must not change. `believed`: tables
        known to hold no impossible value; `memory_bytes` as `bound_memory` takes them. Raises as
        `open` does."""
        if not path.is_file():
            raise BadInput(str(path), "no such file")
        with cls.empty().handed_on() as incident:
            if memory_bytes is not None:
                incident.bound_memory(memory_bytes)
            copy_saved(incident.con, path, in_place=True)
            incident._believed |= set(believed)
            return incident

    @classmethod
    def open(cls, path: Path, memory_bytes: int | None = None) -> Incident:
        """A saved incident, copied so that the file is never held or changed; `memory_bytes` as
        `bound_memory` takes them.

        Older schema versions are read (columns they lack are NULL). Raises BadInput if the file
        is no incident, is damaged, or was written by a newer schema.
        """
        if not path.is_file():
            raise BadInput(str(path), "no such file")
        with cls.empty().handed_on() as incident:
            if memory_bytes is not None:
                incident.bound_memory(memory_bytes)
                copy_saved(incident.con, path)
            else:
                share = max(room.LEAST_BYTES, room.share_bytes())
                incident.con.execute(f"SET memory_limit = '{share >> 20}MiB'")
                copy_saved(incident.con, path)
                incident.con.execute("RESET memory_limit")
            return incident

    @contextmanager
    def handed_on(self) -> Iterator[Incident]:
        """Closed if the block fails; else whoever gets it closes it."""
        try:
            yield self
        except BaseException:
            self.close()
            raise

    def save(self, path: Path) -> None:
        """Write all evidence to `path` at once: a temporary file beside it, then a rename.

        Call before rules run, as they close the sandbox on this connection. Raises UsageError
        if the place cannot be written; nothing half-written is left.
        """
        try:
            # DuckDB keeps files beside its own; in a folder of their own they all go at once.
            with tempfile.TemporaryDirectory(
                prefix=f".{path.name}.", dir=path.parent, ignore_cleanup_errors=True
            ) as folder:
                part = Path(folder, "incident")
                write_saved(self.con, part)
                part.replace(path)
        except (duckdb.Error, OSError) as error:
            raise UsageError(f"cannot save {path}: {reason(error)}") from error

    def bound_memory(self, memory_bytes: int) -> None:
        """From here on tables may take so much memory. What does not fit is kept on disk, in a
        folder that goes with the incident: at most some times as much, and half of what is free
        there. Call before rules run. Where there is no place on disk, what does not fit fails."""
        memory_bytes = max(room.LEAST_BYTES, memory_bytes)
        self.con.execute(f"SET memory_limit = '{memory_bytes >> 20}MiB'")
        with suppress(OSError):
            self._overflow = tempfile.TemporaryDirectory(
                prefix="oncall.", ignore_cleanup_errors=True
            )
            free_bytes = shutil.disk_usage(self._overflow.name).free
            most_bytes = min(_OVERFLOW * memory_bytes, free_bytes // 2)
            self.con.execute(
                f"SET temp_directory = '{quoted(Path(self._overflow.name))}';"
                f"SET max_temp_directory_size = '{most_bytes >> 20}MiB'"
            )

    @property
    def memory_is_bounded(self) -> bool:
        """Whether there is a place for what does not fit into memory."""
        return self._overflow is not None

    def close(self) -> None:
        self.con.close()
        if self._overflow is not None:
            self._overflow.cleanup()

    def interrupt(self) -> None:
        """Stop what is being computed for this incident, from another thread."""
        self.con.interrupt()
        for stop in tuple(self.interrupts):
            stop()

    def __enter__(self) -> Incident:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------ evidence

    def append(self, table: str, columns: Mapping[str, ColumnData]) -> int:
        """Add rows to an evidence table and return how many.

        Each value is an array, a masked array (mask means NULL), Words, a sequence (None means
        NULL) or a scalar for every row; columns not given are NULL. All lengths must agree.
        """
        self._empty.pop(table, None)
        self._lacks.clear()
        self._believed.discard(table)
        return self._grown(insert(self.con, table, BY_NAME[table].columns, columns))

    def append_rows(self, table: str, rows: Iterable[Mapping[str, Any]], **same: Any) -> int:
        """Add rows that need not have the same columns; `same` are alike in all. None: nothing."""
        rows = list(rows)
        names = dict.fromkeys(name for row in rows for name in row)
        columns = {name: [row.get(name) for row in rows] for name in names}
        return self.append(table, {**same, **columns}) if rows else 0

    def _grown(self, rows: int) -> int:
        """So many rows were added. Many are compressed, which costs as much CPU as is saved when
        they are read, and the memory that this takes is given back."""
        self._loose += rows
        if self._loose >= _MANY_ROWS:
            self._loose = 0
            with suppress(duckdb.TransactionException):  # somebody else is writing
                self.con.execute("CHECKPOINT")
            room.give_back()
        return rows

    def rows(self, table: str) -> int:
        """Number of rows in a table or a relation that is ready."""
        # fetchall, for a result not read to its end would keep the connection busy.
        ((count,),) = execute(self.con, f'SELECT count(*) FROM "{table}"').fetchall()
        return int(count)

    @property
    def believed(self) -> frozenset[str]:
        """The tables that were read so far and held no impossible value."""
        return frozenset(self._believed - {one.table for one in self._disbelieved})

    @property
    def disbelieved(self) -> tuple[Disbelief, ...]:
        """What was removed as impossible, of the tables read so far."""
        return tuple(self._disbelieved)

    def disbelieve(self) -> tuple[Disbelief, ...]:
        """Remove the impossible values of every table that holds rows, and return them."""
        for table in TABLES:
            self.is_empty(table.name)
        return self.disbelieved

    def _believe(self, table: str) -> bool:
        """Remove the impossible values of a table, unless that was done; whether there were any."""
        if self._trusted or table in self._believed:
            return False
        found = strip_impossible(self.con, BY_NAME[table])
        self._believed.add(table)
        self._disbelieved += found
        return bool(found)

    # ----------------------------------------------------------- relations

    @property
    def failures(self) -> tuple[RelationFailed, ...]:
        """The relations that could not be computed so far, those left out that only read them."""
        return tuple(error for name, error in self._failed.items() if error.relation == name)

    def missing(self, name: str) -> tuple[str, ...]:
        """Base tables that `name` (a table or relation) cannot do without and that are empty;
        "a or b": either would do."""
        return tuple(" or ".join(clause) for clause in self._missing(name))

    def _missing(self, name: str) -> list[tuple[str, ...]]:
        """The same, each as the tables of which one is needed; none that another one implies."""
        if name in BY_NAME:
            return [(name,)] if self.is_empty(name) else []
        if name not in self._lacks:
            self._lacks[name] = self._lacking(name)
        return self._lacks[name]

    def _lacking(self, name: str) -> list[tuple[str, ...]]:
        gone: dict[frozenset[str], tuple[str, ...]] = {}
        for read in all_relations()[name].reads:
            # Of alternatives one must be there in full, so one of each one's wants must be met.
            for wants in product(*map(self._missing, read.split("|"))):
                clause = tuple(dict.fromkeys(chain.from_iterable(wants)))
                gone.setdefault(frozenset(clause), clause)
        return [clause for key, clause in gone.items() if not any(other < key for other in gone)]

    def is_empty(self, name: str) -> bool:
        """Whether a table or relation holds no row; a relation is made ready to tell.

        Asking never costs a scan, so a view is not known to be empty. Raises MissingEvidence and
        RelationFailed.
        """
        if name not in self._empty:
            if name in BY_NAME:
                rows = self.rows(name)
                if rows and self._believe(name):
                    rows = self.rows(name)
                self._empty[name] = rows == 0
            else:
                self.require([name])
        return self._empty[name]

    def replace_parameters(self, replaced: Replaced) -> None:
        """From here on compute relations with these values, `relation.parameter` -> value, and all
        others with the declared ones. What was computed with others is computed anew."""
        changed = {
            target.partition(".")[0]
            for target in {*replaced, *self._replaced}
            if replaced.get(target) != self._replaced.get(target)
        }
        self._replaced = dict(replaced)
        for entry in (
            all_relations().values() if changed else ()
        ):  # each comes after those that it reads
            named = {param for param in entry.params.values() if isinstance(param, str)}
            if entry.name in changed or changed & {
                *entry.inputs,
                *(param.partition(".")[0] for param in named),
            }:
                changed.add(entry.name)
                self._forget(entry)

    def parameters(self, relation: str) -> Mapping[str, float]:
        """The values that a relation is computed with."""
        return values_of(all_relations()[relation], self._replaced)

    def _forget(self, entry: Relation) -> None:
        if entry.name in self._ready or entry.name in self._failed:
            what = "VIEW" if entry.name in self._views else "TABLE"
            self.con.execute(f'DROP {what} IF EXISTS "{entry.name}"')
        self._ready.discard(entry.name)
        self._views.discard(entry.name)
        self._failed.pop(entry.name, None)
        self._empty.pop(entry.name, None)

    def require(self, names: Iterable[str]) -> None:
        """Make relations ready, with all they read; each is computed once.

        Raises MissingEvidence if a needed table is empty, RelationFailed if one of them or of
        what it reads cannot be computed.
        """
        for name in names:
            gone = self.missing(name)
            if gone:
                raise MissingEvidence(name, gone)
            self._make(name)

    def provide(self, names: Iterable[str]) -> None:
        """Make relations ready; one whose evidence is missing is an empty table.

        Raises RelationFailed if one cannot be computed.
        """
        for name in names:
            self._make(name)

    def provide_what_can_be(self, names: Iterable[str]) -> None:
        """Make relations ready; one whose evidence is missing, or that cannot be computed, is an
        empty table. For who shows `failures` beside what is there."""
        for name in names:
            with suppress(RelationFailed):
                self._make(name)

    def _make(self, name: str) -> None:
        """Make a relation ready. Without its evidence it is an empty one, not a failure."""
        if name in BY_NAME:
            self.is_empty(name)  # and its values are believable from here on
            return
        if name in self._failed:
            raise self._failed[name].with_traceback(None)
        if name in self._ready:
            return
        try:
            self._compute_with_inputs(all_relations()[name])
        except RelationFailed as error:
            self._give_up(name, error)
            raise
        self._ready.add(name)

    def _compute_with_inputs(self, entry: Relation) -> None:
        import numpy as np

        name = entry.name
        if self.missing(name) or any(map(self._all_empty, entry.empty_without)):
            execute(self.con, create_table_sql(name, entry.columns))
            self._empty[name] = True
            return
        for read in entry.inputs:
            self._make(read)
        failed: Exception | None = None
        held_bytes = room.held_bytes()
        try:
            # An overflow or a NaN would only be a warning, and the numbers wrong.
            with np.errstate(over="raise", divide="raise", invalid="raise"):
                rows = self._compute(entry)
                self._empty[name] = rows == 0 and name not in self._views
        except (duckdb.InterruptException, OncallError):
            raise  # somebody stopped it: the next one to ask may have it computed
        except Exception as error:
            failed = error
        if failed is not None:
            details = "".join(traceback.format_exception(failed))
            # Not `from failed`: its frames would keep every array alive with the incident.
            raise RelationFailed(name, short_reason(failed), details)
        if room.held_bytes() > held_bytes + _MUCH_BYTES:
            room.give_back()

    def _give_up(self, name: str, error: RelationFailed) -> None:
        """Remember the failure, and leave an empty table for who shows what is there."""
        self._failed[name] = error
        with suppress(duckdb.Error):
            self.con.execute(
                create_table_sql(name, all_relations()[name].columns, unless_there=True)
            )

    def _all_empty(self, read: str) -> bool:
        """Whether nothing is in any of the tables or relations of `a|b`."""
        choices = read.split("|")
        for choice in choices:
            self._make(choice)
        return all(map(self.is_empty, choices))

    def _compute(self, entry: Relation) -> int:
        """Compute a relation whose inputs are ready; returns its rows (of a view: 0)."""
        if entry.compute is not None:
            computed = entry.compute(self.con, **values_of(entry, self._replaced))
            return self._store(entry, [computed] if isinstance(computed, Mapping) else computed)
        select = select_of(entry, self._replaced)
        typed = ", ".join(f'"{c.name}"::{c.type} AS "{c.name}"' for c in entry.columns)
        what = "TABLE"
        if entry.view and not self.stores_views:
            what = "VIEW"
            self._views.add(entry.name)
        created = execute(
            self.con, f'CREATE {what} "{entry.name}" AS SELECT {typed} FROM ({select})'
        ).fetchall()
        return self._grown(int(created[0][0])) if created else 0

    def _store(self, entry: Relation, parts: Iterable[Mapping[str, ColumnData]]) -> int:
        """Keep the rows of a relation, all or none; returns how many."""
        execute(self.con, create_table_sql(entry.name, entry.columns))
        try:
            return sum(
                self._grown(insert(self.con, entry.name, entry.columns, part)) for part in parts
            )
        except BaseException:
            with suppress(duckdb.Error):
                self.con.execute(f'DROP TABLE "{entry.name}"')
            raise


_OVERFLOW = 4  # times the memory: a relation that needs more would take hours
_MANY_ROWS = 2 * ROW_GROUP  # 60 MB of operations, a tenth of it once they are compressed
_MUCH_BYTES = 16 * 2**20  # that a relation took: what it freed of them goes back to the system
_EVERY_TABLE = ";".join(create_table_sql(table.name, table.columns) for table in TABLES)
