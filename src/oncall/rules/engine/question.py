"""A SELECT that a person asks of an incident, within the walls that rules have: it reads tables
and relations by their names, and no file, network or setting."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import duckdb

from oncall.core.errors import UsageError
from oncall.evidence.incident import Incident
from oncall.evidence.registry import all_relations
from oncall.evidence.schema import BY_NAME
from oncall.rules.engine.sandbox import close_sandbox, compute
from oncall.rules.language.sql import SqlFault, read_sql
from oncall.rules.language.template import nearest

_NO_COLUMN = re.compile(
    r'column "(?P<name>[^"]+)" not found|does not have a column named "(?P<other>[^"]+)"'
)
_MOST_COLUMNS = 8  # shown where no name is near
ANSWER = "answer"  # the temporary table with the rows


@dataclass(frozen=True)
class Answer:
    """The rows are in the table ANSWER. `empty`: what was read and holds no row here, so that a
    lack of rows may be a lack of evidence."""

    columns: tuple[str, ...]
    rows: int
    empty: tuple[str, ...]


def ask(incident: Incident, sql: str) -> Answer:
    """Answer a SELECT; relations that it reads are computed, empty without their evidence.

    Closes the sandbox on the incident's connection. Raises UsageError with the place for SQL that
    is wrong or not allowed, RelationFailed.
    """
    read = read_sql(incident.con, sql)
    for fault in (*read.faults, *read.unknown_tables({*BY_NAME, *all_relations()})):
        raise UsageError(_shown(sql, fault))
    for name, offset in read.params:
        fault = SqlFault("write a value in place of the parameter", offset, len(name) + 1)
        raise UsageError(_shown(sql, fault))
    incident.provide(read.tables)
    close_sandbox(incident.con)
    try:
        columns, rows = compute(incident.con, ANSWER, sql, {})
    except duckdb.Error as error:
        raise UsageError(_refused(str(error), sql, read.tables)) from None
    empty = tuple(name for name in read.tables if not incident.rows(name))
    return Answer(columns, rows, empty)


def _refused(said: str, sql: str, tables: Sequence[str]) -> str:
    """What DuckDB says of a SELECT, without where in its own words; of a column that is not there,
    in which tables, and which of theirs is meant."""
    message = said.partition("\n\nLINE ")[0].partition(" Error: ")[2].strip()
    found = _NO_COLUMN.search(message)
    if found is None or not tables:
        return message
    name = found["name"] or found["other"]
    known = {column for table in tables for column in _columns(table)}
    near = nearest(name, known) or f"; there are {', '.join(sorted(known)[:_MOST_COLUMNS])} ..."
    message = f"no column `{name}` in {', '.join(f'`{table}`' for table in tables)}{near}"
    return _shown(sql, SqlFault(message, sql.find(name), len(name)))


def _columns(table: str) -> Sequence[str]:
    known = all_relations()
    return [one.name for one in (known[table] if table in known else BY_NAME[table]).columns]


def _shown(sql: str, fault: SqlFault) -> str:
    """The message, and below it the line with the place marked."""
    message = fault.message  # which calls a SELECT what rules call it
    for fact, query in ((", relation or earlier fact", " or relation"), ("a fact", "a query")):
        message = message.replace(fact, query)
    if fault.offset is None:
        return message
    begin = sql.rfind("\n", 0, fault.offset) + 1
    line = sql[begin:].split("\n", 1)[0]
    marks = " " * (fault.offset - begin) + "^" * max(1, fault.length or 1)
    return f"{message}\n  {line}\n  {marks}"
