"""Rows of evidence that a node measures on demand, as parts of an answer."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from oncall.evidence.columns import create_table_sql, insert
from oncall.evidence.schema import BY_NAME
from oncall.node.store.batch import Batch
from oncall.node.store.database import connect
from oncall.node.store.wire import Part


def parts_of(batch: Batch) -> Iterator[Part]:
    """The rows as Parquet; none if there are none."""
    if not batch.rows:
        return
    table = BY_NAME[batch.table]
    with tempfile.TemporaryDirectory(prefix="oncall-rows-") as folder:
        path = Path(folder, "part.parquet")
        con = connect()
        try:
            con.execute(create_table_sql(table.name, table.columns))
            insert(con, table.name, table.columns, batch.columns)
            con.execute(f"COPY {table.name} TO '{path}' (FORMAT parquet)")
        finally:
            con.close()
        yield Part(table.name, batch.rows, path.read_bytes())
