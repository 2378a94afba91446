"""Many sealed shards read as one: each evidence table is a view over all of them.

    with open_shards(sealed_shards(folder, since_ns=since)) as shards:
        shards.con.execute("SELECT count(*) FROM ops")
        shards.gaps                      # what could not be read, and why

Columns go by name: what an older shard lacks is NULL. What a newer oncall wrote, or what is
truncated or damaged, is left out and named: a gap in the evidence, never a failure of the query.

DuckDB finds most damage only when it reads the block, and some of it makes the whole instance
unusable, with all that is attached. `read_shards` therefore asks again without the shards that
cannot be read, each of them tried in an instance of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

import duckdb

from oncall.evidence.columns import no_rows_sql
from oncall.evidence.schema import BY_NAME, SCHEMA_VERSION, Table
from oncall.evidence.statements import quoted, reason
from oncall.node.store import bookmarks
from oncall.node.store.catalog import Shard
from oncall.node.store.database import Limits, connect

T = TypeVar("T")

_HEADER_BYTES = 3 * 4096  # before a DuckDB file's first block
_INTERNAL = ("meta", "commits", bookmarks.TABLE)


@dataclass(frozen=True)
class ShardGap:
    """A shard that was left out: the span it covers is unseen."""

    shard: Shard
    reason: Literal["newer", "damaged"]
    problem: str

    def __str__(self) -> str:
        return f"{self.shard.path.name}: {self.problem}"


@dataclass(frozen=True)
class _Attached:
    """A shard in the connection: the name it goes by there, and the columns of its tables."""

    shard: Shard
    alias: str
    columns: dict[str, dict[str, str]]  # table -> column -> DuckDB type
    rows: dict[str, int]  # of its tables, deleted ones included: none is none


class Shards:
    """Sealed shards in one connection, with every evidence table as a view over them all.

    A table that is in the shards but not in the evidence schema (`digest_ops`, say) is a view
    too, over those shards that have it; the view `shards` lists what each shard has:
    (alias, path, node, start_ns, end_ns, tables VARCHAR[]).
    """

    def __init__(self, shards: Sequence[Shard], limits: Limits, spill_to: Path | None) -> None:
        self._limits, self._spill_to = limits, spill_to
        self._gaps: list[ShardGap] = []
        self._open(shards)

    def _open(self, shards: Sequence[Shard]) -> None:
        """Attach the shards in a new instance, and again without one that makes it unusable."""
        left = list(shards)
        while True:
            self.con = connect(self._limits, self._spill_to)
            self._attached: list[_Attached] = []
            gaps: list[ShardGap] = []
            try:
                spoiler = self._attach_all(left, gaps)
                if spoiler is None:
                    self._gaps += gaps
                    self._create_views()
                    return
            except BaseException:
                self.close()
                raise
            self.close()
            self._gaps.append(spoiler)
            left.remove(spoiler.shard)

    def _attach_all(self, shards: Sequence[Shard], gaps: list[ShardGap]) -> ShardGap | None:
        """Attach what can be; returns the shard after which nothing more can be done here."""
        for number, shard in enumerate(shards):
            try:
                if attached := _attach(self.con, shard, f"shard_{number}"):
                    self._attached.append(attached)
            except _LeftOut as left_out:
                if not _is_usable(self.con):
                    return left_out.gap
                gaps.append(left_out.gap)
        return None

    @property
    def shards(self) -> tuple[Shard, ...]:
        return tuple(each.shard for each in self._attached)

    @property
    def gaps(self) -> tuple[ShardGap, ...]:
        return tuple(self._gaps)

    def newest(self, table: str, rows: int) -> tuple[Shard, ...]:
        """The newest shards that together hold so many rows of a table, oldest first; all of them
        where there are fewer."""
        found: list[Shard] = []
        for each in sorted(self._attached, key=lambda each: each.shard, reverse=True):
            if rows <= 0:
                break
            if each.rows.get(table):
                found.append(each.shard)
                rows -= each.rows[table]
        return tuple(reversed(found))

    def leave_out_damaged(self, error: duckdb.Error) -> tuple[ShardGap, ...]:
        """Read every block of the shards that a failed query may have failed in, each in an
        instance of its own, and go on in a new one without those that cannot be read.

        Returns what is newly left out; with nothing left out the query itself was at fault.
        """
        text = str(error)
        named = [shard for shard in self.shards if shard.path.name in text]
        found = _damaged(named) or _damaged(self.shards)
        if found or not _is_usable(self.con):
            damaged = {gap.shard for gap in found}
            self._gaps += found
            self.close()
            self._open([shard for shard in self.shards if shard not in damaged])
        return tuple(found)

    def alone(self, shard: Shard) -> Shards:
        """One of them in an instance of its own."""
        return Shards([shard], self._limits, self._spill_to)

    def add_gaps(self, gaps: Sequence[ShardGap]) -> None:
        """Name shards that a query could not be answered from."""
        self._gaps += gaps

    def close(self) -> None:
        self.con.close()

    def __enter__(self) -> Shards:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _create_views(self) -> None:
        extra = {name for each in self._attached for name in each.columns} - set(BY_NAME)
        for table in BY_NAME.values():
            _create_view(self.con, table.name, _over_evidence(table, self._attached))
        for name in sorted(extra.difference(_INTERNAL)):
            _create_view(self.con, name, _by_name(name, self._attached))
        self.con.execute(
            "CREATE OR REPLACE TABLE memory.main.shards (alias VARCHAR, path VARCHAR, "
            "node VARCHAR, start_ns BIGINT, end_ns BIGINT, tables VARCHAR[])"
        )
        for each in self._attached:
            shard = each.shard
            values = [each.alias, str(shard.path), shard.node, shard.start_ns, shard.end_ns]
            self.con.execute(
                "INSERT INTO memory.main.shards VALUES (?, ?, ?, ?, ?, ?)",
                [*values, sorted(each.columns)],
            )


class _LeftOut(Exception):
    def __init__(self, gap: ShardGap) -> None:
        self.gap = gap
        super().__init__(str(gap))


def open_shards(
    shards: Sequence[Shard], limits: Limits | None = None, spill_to: Path | None = None
) -> Shards:
    """Attach the shards read-only and put the views over them.

    One that retention took away meanwhile is no gap: it was older than what is kept.
    """
    return Shards(shards, limits or Limits(memory_bytes=512 * 2**20, threads=2), spill_to)


def read_shards(opened: Shards, read: Callable[[Shards], T]) -> list[T]:
    """What `read` finds in the shards; where that fails, without those that cannot be read, which
    are then among the gaps.

    Where none of them is at fault alone, each is read by itself: one result for each, and those
    where that fails are gaps. Raises the error if it is so of all.
    """
    try:
        return [read(opened)]
    except duckdb.Error as error:
        if opened.leave_out_damaged(error):
            return read_shards(opened, read)
        return _read_each(opened, read, error)


def _read_each(opened: Shards, read: Callable[[Shards], T], error: duckdb.Error) -> list[T]:
    found: list[T] = []
    gaps: list[ShardGap] = []
    for shard in opened.shards if len(opened.shards) > 1 else ():
        with opened.alone(shard) as one:
            try:
                found.append(read(one))
            except duckdb.Error as own:
                gaps.append(ShardGap(shard, "damaged", f"cannot be queried: {reason(own)}"))
    if not found:
        raise error
    opened.add_gaps(gaps)
    return found


# ------------------------------------------------------------------ attaching


def _attach(con: duckdb.DuckDBPyConnection, shard: Shard, alias: str) -> _Attached | None:
    """The shard, attached as `alias`; None if it is gone. Raises _LeftOut if it cannot be used."""
    size_bytes = shard.size_bytes
    if not shard.path.exists():
        return None
    if size_bytes < _HEADER_BYTES:
        raise _LeftOut(ShardGap(shard, "damaged", f"damaged: cut off after {size_bytes} bytes"))
    try:
        con.execute(f"ATTACH '{quoted(shard.path)}' AS {alias} (READ_ONLY)")
    except duckdb.Error as error:
        raise _LeftOut(_gap_of(shard, error)) from error
    try:
        columns, rows = _check(con, shard, alias, size_bytes)
    except (duckdb.Error, _LeftOut) as error:
        with suppress(duckdb.Error):  # an instance that is of no more use
            con.execute(f"DETACH {alias}")
        if isinstance(error, _LeftOut):
            raise
        raise _LeftOut(_gap_of(shard, error)) from error
    return _Attached(shard, alias, columns, rows)


def _check(
    con: duckdb.DuckDBPyConnection, shard: Shard, alias: str, size_bytes: int
) -> tuple[dict[str, dict[str, str]], dict[str, int]]:
    """The columns of the shard's tables, and their rows. Raises _LeftOut for what must not be
    read."""
    ((blocks, block_bytes),) = con.execute(
        "SELECT total_blocks, block_size FROM pragma_database_size() WHERE database_name = ?",
        [alias],
    ).fetchall()
    expected_bytes = _HEADER_BYTES + blocks * block_bytes
    if size_bytes < expected_bytes:
        problem = f"damaged: cut off after {size_bytes} of {expected_bytes} bytes"
        raise _LeftOut(ShardGap(shard, "damaged", problem))
    # Tables only: a view in a file that others wrote could read any other file.
    tables = dict(
        con.execute(
            "SELECT table_name, estimated_size FROM duckdb_tables() "
            "WHERE database_name = ? AND schema_name = 'main'",
            [alias],
        ).fetchall()
    )
    described = con.execute(
        "SELECT table_name, column_name, data_type FROM duckdb_columns() "
        "WHERE database_name = ? AND schema_name = 'main'",
        [alias],
    ).fetchall()
    columns: dict[str, dict[str, str]] = {}
    for table, column, kind in described:
        if table in tables:
            columns.setdefault(table, {})[column] = kind
    _check_version(con, shard, alias, columns.get("meta", {}))
    return columns, tables


def _check_version(
    con: duckdb.DuckDBPyConnection, shard: Shard, alias: str, meta: dict[str, str]
) -> None:
    if not {"schema_version", "oncall_version"} <= set(meta):
        raise _LeftOut(ShardGap(shard, "damaged", "a DuckDB file, but not an oncall shard"))
    rows = con.execute(f"SELECT schema_version, oncall_version FROM {alias}.main.meta").fetchall()
    if len(rows) != 1 or not isinstance(rows[0][0], int):
        raise _LeftOut(ShardGap(shard, "damaged", "a shard without its version"))
    version, writer = rows[0]
    if version > SCHEMA_VERSION:
        problem = (
            f"written by oncall {writer} with evidence schema {version}; this oncall reads up to "
            f"{SCHEMA_VERSION}: upgrade it"
        )
        raise _LeftOut(ShardGap(shard, "newer", problem))


def _gap_of(shard: Shard, error: duckdb.Error) -> ShardGap:
    text = reason(error)
    if "newer version" in text or "storage version" in text:
        return ShardGap(shard, "newer", f"written by a newer DuckDB: {text}")
    return ShardGap(shard, "damaged", f"damaged: {text}")


def _is_usable(con: duckdb.DuckDBPyConnection) -> bool:
    """Whether the instance answers at all: after a fatal error it does not any more."""
    try:
        con.execute("SELECT 1").fetchall()
    except duckdb.Error:
        return False
    return True


def _damaged(shards: Sequence[Shard]) -> list[ShardGap]:
    """Those that cannot be read to their end."""
    return [gap for shard in shards if (gap := _damage(shard))]


def _damage(shard: Shard) -> ShardGap | None:
    """Why a shard cannot be read to its end, or None; tried in an instance of its own."""
    con = connect(Limits(memory_bytes=256 * 2**20))
    try:
        attached = _attach(con, shard, "alone")
        for table, columns in attached.columns.items() if attached else ():
            # An aggregate that looks at every value, so that no block is skipped.
            hashes = ", ".join(f'bit_xor(hash("{column}"))' for column in columns)
            con.execute(f'SELECT {hashes} FROM alone.main."{table}"').fetchall()
    except _LeftOut as left_out:
        return left_out.gap
    except duckdb.Error as error:
        return ShardGap(shard, "damaged", f"damaged: {reason(error)}")
    finally:
        con.close()
    return None


# ---------------------------------------------------------------------- views


def _create_view(con: duckdb.DuckDBPyConnection, name: str, select: str) -> None:
    con.execute(f'CREATE OR REPLACE VIEW memory.main."{name}" AS {select}')


def _over_evidence(table: Table, attached: Sequence[_Attached]) -> str:
    """All shards' rows of one evidence table, in today's columns."""
    parts = []
    for each in attached:
        if each.rows.get(table.name):
            present = each.columns[table.name]
            values = ", ".join(
                f'"{c.name}"::{c.type} AS "{c.name}"'
                if c.name in present
                else f'NULL::{c.type} AS "{c.name}"'
                for c in table.columns
            )
            parts.append(f"SELECT {values} FROM {each.alias}.main.{table.name}")
    return " UNION ALL ".join(parts) or no_rows_sql(table.columns)


def _by_name(table: str, attached: Sequence[_Attached]) -> str:
    return " UNION ALL BY NAME ".join(
        f'FROM {each.alias}.main."{table}"' for each in attached if table in each.columns
    )
