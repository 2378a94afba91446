"""What is called empty is empty, whatever the query; and the common shapes are recognised."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncall.rules.language.emptiness import proven_empty
from oncall.rules.language.sql import read_sql

TABLES = {"none": 0, "nothing": 0, "few": 2, "more": 3}


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        for name, rows in TABLES.items():
            connection.execute(
                f"CREATE TABLE {name} AS SELECT range AS x, 1 AS y FROM range({rows})"
            )
        yield connection


def known_empty(con: duckdb.DuckDBPyConnection, sql: str) -> bool:
    return proven_empty(read_sql(con, sql).node, lambda name: TABLES[name] == 0)


@pytest.mark.parametrize(
    "sql",
    [
        "FROM none",
        "SELECT x + 1 AS x FROM none WHERE y > 2 ORDER BY x LIMIT 3",
        "SELECT n.x FROM none n LEFT JOIN few USING (x)",
        "SELECT n.x FROM few JOIN none n USING (x)",
        "SELECT n.x FROM few s, none n WHERE s.x = n.x",
        "SELECT x FROM few RIGHT JOIN none USING (x)",
        "SELECT x FROM none ANTI JOIN few USING (x)",
        "SELECT x FROM few SEMI JOIN none USING (x)",
        "SELECT x, count(*) FROM none GROUP BY ALL",
        "SELECT max(y) FROM none GROUP BY x",
        "SELECT *, max(y) OVER (PARTITION BY x) AS m FROM none QUALIFY m = 1",
        "WITH c AS (SELECT * FROM none), d AS (FROM c) SELECT x FROM d LEFT JOIN few USING (x)",
        "WITH none AS (FROM none) FROM none",
        "SELECT x FROM (SELECT x FROM none WHERE y = 1) LEFT JOIN few USING (x)",
        "FROM none UNION ALL FROM nothing",
        "FROM none EXCEPT FROM few",
        "WITH RECURSIVE r AS (SELECT x FROM none UNION SELECT x + 1 FROM r WHERE x < 9) FROM r",
    ],
)
def test_common_shapes_are_recognised(con: duckdb.DuckDBPyConnection, sql: str) -> None:
    assert con.execute(sql).fetchall() == []
    assert known_empty(con, sql)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT count(*) FROM none",
        "SELECT sum(sum(x)) OVER () FROM none",
        "SELECT max(x) FROM none GROUP BY ALL",
        "SELECT coalesce(max(x), 0) FROM none",
        "SELECT nullif(max(x), 0) FROM none",
        "SELECT * REPLACE (max(x) AS x) FROM (SELECT x FROM none)",
        "SELECT x, count(*) FROM none GROUP BY ROLLUP (x)",
        "SELECT 1 FROM none HAVING count(*) = 0",
        "SELECT x FROM few LEFT JOIN none USING (x)",
        "SELECT x FROM none RIGHT JOIN few USING (x)",
        "SELECT x FROM none FULL JOIN few USING (x)",
        "SELECT s.x FROM few s POSITIONAL JOIN none",
        "FROM none UNION ALL FROM few",
        "WITH none AS (FROM few) FROM none",
        "SELECT 1",
    ],
)
def test_rows_out_of_nothing_are_not_ruled_out(con: duckdb.DuckDBPyConnection, sql: str) -> None:
    assert con.execute(sql).fetchall() != []
    assert not known_empty(con, sql)


_SOURCES = st.recursive(
    st.sampled_from(sorted(TABLES)).map(lambda name: f"(SELECT x, y FROM {name})"),
    lambda inner: st.one_of(
        st.builds(
            "(SELECT x, y FROM {} {} JOIN {} USING (x, y))".format,
            inner,
            st.sampled_from(["", "LEFT", "RIGHT", "FULL", "SEMI", "ANTI"]),
            inner,
        ),
        st.builds(
            "(SELECT x, y FROM {} {} SELECT x, y FROM {})".format,
            inner,
            st.sampled_from(["UNION", "UNION ALL", "EXCEPT", "INTERSECT"]),
            inner,
        ),
        st.builds("(WITH none AS {} SELECT x, y FROM none)".format, inner),
        st.builds("(SELECT {} FROM {})".format, st.just("max(x) AS x, min(y) AS y"), inner),
        st.builds("(SELECT x, max(y) AS y FROM {} GROUP BY {})".format, inner, st.just("ALL")),
        st.builds("(SELECT x, max(y) AS y FROM {} GROUP BY {})".format, inner, st.just("CUBE(x)")),
    ),
    max_leaves=5,
)


@given(source=_SOURCES)
def test_what_is_called_empty_is(con: duckdb.DuckDBPyConnection, source: str) -> None:
    sql = f"SELECT x, y FROM {source}"
    if known_empty(con, sql):
        assert con.execute(sql).fetchall() == []
