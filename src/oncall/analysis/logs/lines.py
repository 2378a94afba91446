"""Log lines as the functions of this room read them, in the order in which they were written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Attempt:
    """What the logs say of one start of a job. Each row has its place in `order`."""

    job: str
    number: int
    events: Sequence[Row]
    reports: Sequence[Row]
    steps: Sequence[Row]
    world: int | None

    def went_on_after(self, row: Row, steps: int = 3) -> bool:
        """Whether the same log shows that many steps after the row: the job outlived it."""
        later = {
            step["iteration"]
            for step in self.steps
            if step["path"] == row["path"] and step["line"] > row["line"]
        }
        return len(later) >= steps

    def of(self, *kinds: str) -> list[Row]:
        """Events of these kinds, in order."""
        return [row for row in self.events if row["kind"] in kinds]


# A file without stamps has an order of its own only; the others follow their clocks.
_ORDER = "ORDER BY sort_ns NULLS FIRST, path, line"
_EVENTS = f"SELECT *, row_number() OVER ({_ORDER}) AS place FROM lines"


def attempts(con: duckdb.DuckDBPyConnection) -> list[Attempt]:
    """Every start of the job that left lines, the first one first."""
    con.execute(
        """
        CREATE OR REPLACE TEMP TABLE lines AS
        SELECT * REPLACE (coalesce(sort_ns, min(sort_ns) OVER (PARTITION BY path)) AS sort_ns)
        FROM (
            SELECT 'event' AS of_table, * FROM log_events
            UNION ALL BY NAME SELECT 'report' AS of_table, * FROM watchdog_reports
            UNION ALL BY NAME SELECT 'step' AS of_table, *, at_ns AS sort_ns FROM logged_steps)
        """
    )
    try:
        cursor = con.execute(f"{_EVENTS} ORDER BY place")
        names = [column[0] for column in cursor.description or ()]
        rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    finally:
        con.execute("DROP TABLE lines")
    worlds = dict(con.execute("SELECT job, max(world_size) FROM jobs GROUP BY job").fetchall())
    keys = sorted({(row["job"], row["attempt"]) for row in rows})
    return [
        Attempt(
            job,
            number,
            _of(rows, job, number, "event"),
            _of(rows, job, number, "report"),
            _of(rows, job, number, "step"),
            worlds.get(job),
        )
        for job, number in keys
    ]


def _of(rows: Sequence[Row], job: str, attempt: int, of_table: str) -> list[Row]:
    wanted = (job, attempt, of_table)
    return [row for row in rows if (row["job"], row["attempt"], row["of_table"]) == wanted]
