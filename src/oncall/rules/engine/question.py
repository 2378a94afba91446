"""A SELECT that a person asks of an incident, within the walls that rules have: it reads tables
and relations by their names, and no file, network or setting."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb

from oncall.core.errors import UsageError
from oncall.evidence.incident import Incident
from oncall.evidence.registry import all_relations
from oncall.evidence.schema import BY_NAME
from oncall.rules.engine.sandbox import close_sandbox, compute
from oncall.rules.language.sql import SqlFault, read_sql

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
        raise UsageError(str(error).strip()) from None
    empty = tuple(name for name in read.tables if not incident.rows(name))
    return Answer(columns, rows, empty)


def _shown(sql: str, fault: SqlFault) -> str:
    """The message, and below it the line with the place marked."""
    message = fault.message  # which calls a SELECT what rules call it
    for fact, query in (("relation or earlier fact", "relation"), ("a fact", "a query")):
        message = message.replace(fact, query)
    if fault.offset is None:
        return message
    begin = sql.rfind("\n", 0, fault.offset) + 1
    line = sql[begin:].split("\n", 1)[0]
    marks = " " * (fault.offset - begin) + "^" * max(1, fault.length or 1)
    return f"{message}\n  {line}\n  {marks}"
