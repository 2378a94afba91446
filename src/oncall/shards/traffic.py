"""Operations found in traffic, beside the shards: the same relations that a console computes.

A connection to a node's evidence, live or sealed, is lent a database in memory; what the relations
read is copied there, they are computed there, and nothing of it stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from oncall.evidence.columns import create_table_sql
from oncall.evidence.incident import Incident
from oncall.evidence.schema import TABLES

if TYPE_CHECKING:
    import duckdb

READ = ("ranks", "comms", "qps", "ops", "epochs")  # of these what segmentation needs
_DATABASE = "traffic_alone"


@contextmanager
def evidence_of(con: duckdb.DuckDBPyConnection) -> Iterator[Incident]:
    """An incident in memory with the evidence of traffic that `con` shows, while this lasts."""
    import oncall.analysis  # noqa: F401  (registers the relations)

    ((database, schema),) = con.execute("SELECT current_database(), current_schema()").fetchall()
    con.execute(f"ATTACH ':memory:' AS {_DATABASE}; USE {_DATABASE}")
    try:
        con.execute(";".join(create_table_sql(table.name, table.columns) for table in TABLES))
        for table in READ:
            con.execute(
                f'INSERT INTO {table} SELECT DISTINCT * FROM "{database}"."{schema}".{table}'
            )
        yield Incident(con)
    finally:
        con.execute(f'USE "{database}"."{schema}"; DETACH {_DATABASE}')
