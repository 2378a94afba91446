"""The evidence schema, declared once: every table, column, type, unit, meaning and source.

`SCHEMA_VERSION` rises when a column changes its meaning or goes away. A new table or a new
column does not raise it: an older incident simply has no rows or NULLs there.
"""

from __future__ import annotations

from oncall.evidence.archive_tables import ARCHIVE_TABLES
from oncall.evidence.host_tables import HOST_TABLES
from oncall.evidence.log_tables import LOG_TABLES
from oncall.evidence.network_tables import NETWORK_TABLES
from oncall.evidence.table import Column, Table
from oncall.evidence.training_tables import TRAINING_TABLES

__all__ = ["BY_NAME", "SCHEMA_VERSION", "TABLES", "Column", "Table", "data_of"]

SCHEMA_VERSION = 1

TABLES: tuple[Table, ...] = (
    *TRAINING_TABLES,
    *NETWORK_TABLES,
    *HOST_TABLES,
    *LOG_TABLES,
    *ARCHIVE_TABLES,
)
BY_NAME: dict[str, Table] = {table.name: table for table in TABLES}


def data_of(missing: str) -> str:
    """What a table that is missing is called in a sentence; "a or b": either would do."""
    names = missing.split(" or ")
    return " or ".join(BY_NAME[name].data if name in BY_NAME else name for name in names)
