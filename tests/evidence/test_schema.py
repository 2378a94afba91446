"""The schema: declared once, with a unit wherever a name promises one."""

from __future__ import annotations

import re

import pytest

from oncall.evidence.columns import create_table_sql
from oncall.evidence.incident import Incident
from oncall.evidence.schema import BY_NAME, TABLES, Table

# What a column's name promises, and the unit that keeps it.
UNITS = {
    r".*_per_s": "bytes/s",
    r".*_ns": "ns",
    r"(.*_)?bytes": "bytes",
    r".*_mhz": "MHz",
    r".*_w": "W",
    r".*_c": "°C",
    r".*_rate": "1/s",
}


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_every_table_is_reported_in_full(table: Table) -> None:
    assert table.row and table.source and BY_NAME[table.name] is table
    assert len(set(table.column_names)) == len(table.columns)
    for column in table.columns:
        assert re.fullmatch(r"[a-z][a-z0-9_]*", column.name)
        assert column.meaning and column.meaning == column.meaning.strip()
        promised = [unit for name, unit in UNITS.items() if re.fullmatch(name, column.name)]
        assert column.unit in (promised[:1] or ["", column.unit]), column


def test_names_are_distinct() -> None:
    assert len(BY_NAME) == len(TABLES)


def test_a_column_of_one_name_means_one_thing_everywhere() -> None:
    types: dict[str, set[str]] = {}
    for table in TABLES:
        for column in table.columns:
            types.setdefault(column.name, set()).add(column.type)
    assert {name: found for name, found in types.items() if len(found) > 1} == {}


def test_an_empty_incident_has_every_table_as_declared() -> None:
    with Incident.empty() as incident:
        for table in TABLES:
            found = incident.con.execute(f"DESCRIBE {table.name}").fetchall()
            assert [row[:2] for row in found] == [(c.name, c.type) for c in table.columns]
            assert incident.rows(table.name) == 0


def test_names_that_are_words_of_sql_are_quoted() -> None:
    sql = create_table_sql("flows", BY_NAME["op_channels"].columns[:2])
    assert sql == 'CREATE TABLE "flows" ("job" VARCHAR, "comm" UBIGINT)'
