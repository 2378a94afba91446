"""Tasks of training beside the shards: labelled from all of a node's operations, as few go away.

Labelling needs every call of many iterations; a digest holds one in so many. So the sealed shards
are labelled here, and what goes is tasks, far fewer rows. What is not sealed yet has its turn when
it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from oncall.evidence.columns import create_table_sql
from oncall.evidence.incident import Incident
from oncall.evidence.schema import BY_NAME, TABLES
from oncall.node.store.catalog import Shard
from oncall.node.store.wire import Part

if TYPE_CHECKING:
    from pathlib import Path

    import duckdb

TASKS = 20_000  # rows, the newest
OPERATIONS = 10 * TASKS  # the newest: a task of a pipeline with tensor parallelism has ten calls
_DATABASE = "labelling"
_PARQUET = "FORMAT parquet, COMPRESSION zstd, PARQUET_VERSION v2"
_AT = "coalesce(enqueued_ns, started_ns)"


class LabelledTasks:
    """The tasks of a node's sealed shards. They are kept until another shard is sealed: a console
    that watches asks every few seconds."""

    def __init__(self) -> None:
        self._of: tuple[object, ...] = ()
        self._part: Part | None = None

    def part(
        self,
        con: duckdb.DuckDBPyConnection,
        shards: Sequence[Shard],
        job: str | None,
        folder: Path,
    ) -> Part | None:
        """Rows of stage_tasks, None if there are none; `con` shows all evidence of the shards."""
        key = (job, *(str(shard.path) for shard in shards))
        if key != self._of:
            self._part = _label(con, job, folder / "labelled.parquet")
            self._of = key
        return self._part


def _label(con: duckdb.DuckDBPyConnection, job: str | None, path: Path) -> Part | None:
    """Label the newest operations of the job, in a database in memory of which nothing stays."""
    if job is None or con.execute("SELECT 1 FROM stage_tasks LIMIT 1").fetchall():
        return None  # the recorder reported its tasks

    ((base, schema),) = con.execute("SELECT current_database(), current_schema()").fetchall()
    con.execute(f"ATTACH ':memory:' AS {_DATABASE}; USE {_DATABASE}")
    try:
        con.execute(";".join(create_table_sql(table.name, table.columns) for table in TABLES))
        _copy(con, f'"{base}"."{schema}"', job)
        incident = Incident(con)
        incident.provide(["labelled_tasks"])
        if incident.is_empty("labelled_tasks"):
            return None
        names = ", ".join(BY_NAME["stage_tasks"].column_names)
        con.execute(
            f"COPY (SELECT {names} FROM labelled_tasks ORDER BY started_ns DESC NULLS FIRST "
            f"LIMIT {TASKS}) TO '{path}' ({_PARQUET})"
        )
        return Part("stage_tasks", min(incident.rows("labelled_tasks"), TASKS), path.read_bytes())
    finally:
        con.execute(f'USE "{base}"."{schema}"; DETACH {_DATABASE}')


def _copy(con: duckdb.DuckDBPyConnection, base: str, job: str) -> None:
    """What labelling reads: memberships, and the newest operations."""
    of_job = f"FROM {base}.{{}} WHERE job = ?"
    for table in ("jobs", "ranks", "comms"):
        con.execute(f"INSERT INTO {table} SELECT DISTINCT * {of_job.format(table)}", [job])
    ((count,),) = con.execute(f"SELECT count(*) {of_job.format('ops')}", [job]).fetchall()
    newest = ""
    if count > OPERATIONS:
        older = 1 - OPERATIONS / count
        ((since_ns,),) = con.execute(
            f"SELECT approx_quantile({_AT}, {older:.6f}) {of_job.format('ops')}", [job]
        ).fetchall()
        newest = f"AND {_AT} >= {int(since_ns)}"
    con.execute(f"INSERT INTO ops SELECT * {of_job.format('ops')} {newest}", [job])
