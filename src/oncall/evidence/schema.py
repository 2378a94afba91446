"""The evidence schema, declared once: every table, column, type, unit, meaning and source.

`SCHEMA_VERSION` rises when a column changes its meaning or goes away. A new table or a new
column does not raise it: an older incident simply has no rows or NULLs there.
"""

from __future__ import annotations

from oncall.evidence.host_tables import HOST_TABLES
from oncall.evidence.log_tables import LOG_TABLES
from oncall.evidence.network_tables import NETWORK_TABLES
from oncall.evidence.table import NODE, Column, Table, table
from oncall.evidence.training_tables import TRAINING_TABLES

ARCHIVE_TABLES: tuple[Table, ...] = (
    table(
        "archived_findings",
        "former incidents",
        "one fault at one component in former incidents",
        "oncall archive",
        ("cluster", "VARCHAR", "", "the cluster it was in"),
        ("past_job", "VARCHAR", "", "the job it was in"),
        ("rulebook", "VARCHAR", "", "rulebook of its root cause"),
        ("verdict", "VARCHAR", "", "its verdict"),
        ("title", "VARCHAR", "", "the verdict in words"),
        ("kind", "VARCHAR", "", "what was blamed: node, gpu, nic, link, rank ..."),
        NODE,
        ("component", "VARCHAR", "", "such as gpu017/mlx5_3; NULL: no hardware was blamed"),
        ("found_ns", "BIGINT", "ns", "since when, Unix time"),
        ("last_ns", "BIGINT", "ns", "since when, as the last look at the same fault says"),
        ("fixed_by", "VARCHAR", "", "what fixed it, as somebody noted"),
    ),
)


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
