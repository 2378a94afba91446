"""The digest that a shard gets when it is sealed: `digest_ops`, `digest_transfers` and
`digest_left_off` beside the evidence.

A rank's last operation on each communicator is carried over from the shard before, so that each
shard alone holds every rank's position, however old. So is its own time: a communicator may be
used once in many shards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from oncall.evidence.schema import BY_NAME
from oncall.evidence.statements import quoted
from oncall.node.store.catalog import Shard, sealed_shards
from oncall.node.store.database import connect
from oncall.node.store.digest import (
    LEFT_OFF,
    measure_own_time,
    put_rows,
    thin,
    thin_transfers,
)
from oncall.node.store.retention import in_sealing_order

if TYPE_CHECKING:
    import duckdb

CANDIDATES = {"ops": "digest_ops", "transfers": "digest_transfers"}  # in a sealed shard
CANDIDATE_ROWS = 8_192
CARRIED_NS = 24 * 3600 * 10**9  # how long a rank's last operation is carried from shard to shard
_TRIED = 3  # shards that are read for what is carried over
_MEMBER = ("job", "comm", "kind", "rank")
_SEEN = "coalesce(ended_ns, observed_ns, enqueued_ns)"
_CARRIED = {"digest_ops": BY_NAME["ops"].columns, "digest_left_off": LEFT_OFF}

Rows: TypeAlias = Sequence[tuple[Any, ...]]


class ShardDigests:
    """Makes the digest of one shard after the other. What goes on from shard to shard is read
    from the one sealed last, and remembered from then on."""

    def __init__(self) -> None:
        self._before: Mapping[str, Rows] | None = None

    def prepare(self, con: duckdb.DuckDBPyConnection) -> None:
        """Store the candidates of the evidence in `con` beside it: to be called when a shard is
        sealed, with the shard current. One without operations has none."""
        if not shows(con, "ops") and not shows(con, "transfers"):
            return
        before = _shard_before(con) if self._before is None else self._before
        self._before = None  # what fails half way is read again
        measure_own_time(con, "ops", "digest_measured", before.get("digest_left_off", ()))
        con.execute("BEGIN")  # a shard that is recovered after a kill has all of it or nothing
        thin(con, "temp.digest_measured", "TABLE digest_ops", CANDIDATE_ROWS, shard="ops")
        thin_transfers(con, "transfers", "TABLE digest_transfers", CANDIDATE_ROWS)
        con.execute("CREATE OR REPLACE TABLE digest_left_off AS FROM temp.digest_left_off")
        if carried := before.get("digest_ops"):
            _carry_over(con, carried)
        con.execute("COMMIT")
        con.execute("DROP VIEW temp.digest_measured; DROP TABLE temp.digest_own")
        self._before = _carried(con, "main")


def shows(con: duckdb.DuckDBPyConnection, name: str) -> bool:
    """Whether the current database has a table or view of that name."""
    found = con.execute(
        "SELECT 1 FROM information_schema.tables WHERE table_name = ? "
        "AND table_catalog = current_database()",
        [name],
    ).fetchall()
    return bool(found)


def _carry_over(con: duckdb.DuckDBPyConnection, before: Rows) -> None:
    """Add the last operations that the shard before knows, of ranks that did nothing since."""
    put_rows(con, "digest_before", _CARRIED["digest_ops"], before)
    columns = ", ".join(f'"{name}"' for name in BY_NAME["ops"].column_names)
    member = ", ".join(_MEMBER)
    con.execute(
        f"""
        INSERT INTO digest_ops ({columns})
        SELECT {columns} FROM temp.digest_before
        WHERE hash({member}) NOT IN (SELECT hash({member}) FROM digest_ops)
            AND {_SEEN} > (SELECT max({_SEEN}) FROM digest_ops) - {CARRIED_NS}
        """
    )


def _shard_before(con: duckdb.DuckDBPyConnection) -> Mapping[str, Rows]:
    """What digests left in the shard sealed last beside the store that is current, of the same
    node.

    It is read in an instance of its own: damage in it must not make the one unusable that holds
    the live store. Where it cannot be read, the one before it counts.
    """
    import duckdb

    ((path, node),) = con.execute(
        "SELECT path, (SELECT node FROM meta) FROM duckdb_databases() "
        "WHERE database_name = current_database()"
    ).fetchall()
    folder = Path(path).parent
    sealed = in_sealing_order(folder, sealed_shards(folder, nodes=[node])) if path else []
    for shard in reversed(sealed[-_TRIED:]):
        with suppress(duckdb.Error):
            return _left_in(shard)
    return {}


def _left_in(shard: Shard) -> Mapping[str, Rows]:
    con = connect()
    try:
        con.execute(f"ATTACH '{quoted(shard.path)}' AS before (READ_ONLY)")
        return _carried(con, "before.main")
    finally:
        con.close()


def _carried(con: duckdb.DuckDBPyConnection, schema: str) -> Mapping[str, Rows]:
    """What a digest in this schema has for the one after it."""
    rows = {}
    for table, columns in _CARRIED.items():
        names = ", ".join(f'"{column.name}"' for column in columns)
        last = f"QUALIFY seq = max(seq) OVER (PARTITION BY {', '.join(_MEMBER)})"
        only = last if table == "digest_ops" else ""
        rows[table] = con.execute(f"SELECT {names} FROM {schema}.{table} {only}").fetchall()
    return rows
