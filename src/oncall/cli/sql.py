"""`oncall sql`: ask an incident's tables and relations in SQL."""

from __future__ import annotations

import csv
import io
import json
import sys
from contextlib import redirect_stdout
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from oncall.cli.evidence import Evidence, evidence_of
from oncall.cli.options import JobOption, warn
from oncall.cli.terminal import Interruptible, terminal_width
from oncall.core.printable import clean_lines, harmless_values

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oncall.evidence.incident import Incident

_AT_ONCE = 10_000  # rows fetched
_MOST_SHOWN = 40  # rows of a table for the eye


class Format(StrEnum):
    """The output format."""

    TEXT = "text"
    CSV = "csv"
    JSON = "json"


def sql(
    path: Evidence,
    select: Annotated[
        str, typer.Argument(metavar="SELECT", help="The query; - reads it from standard input.")
    ],
    job: JobOption = None,
    format: Annotated[  # noqa: A002
        Format,
        typer.Option(help="text shows the first rows; csv and json, a line a row, write all."),
    ] = Format.TEXT,
) -> None:
    """Ask an incident's tables and relations in SQL.

    `oncall schema` lists them. As in a rule, a query reads tables and relations only, no file; it
    changes nothing.
    """
    from oncall.rules.engine.question import ask

    with evidence_of(path, job) as incident, Interruptible(incident.con):
        answer = ask(incident, sys.stdin.read() if select == "-" else select)
        _WRITTEN[format](incident, answer.columns)
        for name in answer.empty:
            warn(f"`{name}` holds no rows here: nothing recorded them")


def _text(incident: Incident, columns: tuple[str, ...]) -> None:  # noqa: ARG001
    from oncall.rules.engine.question import ANSWER

    shown = io.StringIO()
    with redirect_stdout(shown):
        incident.con.table(ANSWER).show(max_width=terminal_width(most=240), max_rows=_MOST_SHOWN)
    print("\n".join(clean_lines(shown.getvalue().rstrip())))


def _csv(incident: Incident, columns: tuple[str, ...]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(columns)
    for rows in _rows(incident):
        writer.writerows([harmless_values(row) for row in rows])


def _json(incident: Incident, columns: tuple[str, ...]) -> None:
    for rows in _rows(incident):
        for row in rows:
            one = dict(zip(columns, row, strict=True))
            print(json.dumps(one, default=str))


def _rows(incident: Incident) -> Iterator[list[tuple[object, ...]]]:
    from oncall.rules.engine.question import ANSWER

    found = incident.con.execute(f"FROM {ANSWER}")
    while rows := found.fetchmany(_AT_ONCE):
        yield rows


_WRITTEN = {Format.TEXT: _text, Format.CSV: _csv, Format.JSON: _json}
