"""Statements parsed once do what the same text would do each time."""

from __future__ import annotations

import duckdb
import pytest

from oncall.evidence import statements
from oncall.evidence.statements import execute


def test_what_was_parsed_runs_on_any_connection_with_new_values() -> None:
    for value in (1, 2):
        with duckdb.connect() as con:
            sql = "CREATE TABLE kept AS SELECT $value AS it"
            execute(con, sql, {"value": value})
            assert execute(con, "FROM kept").fetchall() == [(value,)]


def test_a_table_that_changed_its_columns_is_read_as_it_is() -> None:
    with duckdb.connect() as con:
        for columns in ("1 AS a", "1 AS a, 2 AS b"):
            con.execute(f"CREATE OR REPLACE TABLE changed AS SELECT {columns}")
            assert len(execute(con, "FROM changed").fetchall()[0]) == len(columns.split(","))


def test_no_more_is_kept_than_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statements, "MOST_KEPT", 3)
    monkeypatch.setattr(statements, "_kept", {})
    with duckdb.connect() as con:
        for number in range(10):
            assert execute(con, f"SELECT {number}").fetchall() == [(number,)]
            assert len(statements._kept) <= 3
