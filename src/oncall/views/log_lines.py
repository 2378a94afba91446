"""The lines of logs around a moment, as people read them: when, who, what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from oncall.core.printable import clean
from oncall.core.units import NS_PER_S
from oncall.views.words import instant

if TYPE_CHECKING:
    from oncall.evidence.incident import Incident  # brings DuckDB, which the lines do without

_PROBLEMS = (
    "error", "cuda", "memory", "exit", "crash", "signal", "scheduler", "xid", "sxid", "ib", "port",
    "mismatch", "desync",
)  # fmt: skip


@dataclass(frozen=True)
class LoggedLine:
    """`at_ns` is None in a log without stamps, and that of a line before where `stamped` is not.
    `source`: a rank, a node or a file. `problem`: it is of a kind that stops or slows jobs."""

    at_ns: int | None
    source: str
    text: str
    problem: bool = False
    stamped: bool = True

    @property
    def clock(self) -> str:
        """`02:40:11 UTC`, or `~02:40:11 UTC` of a line without a stamp of its own."""
        if self.at_ns is None:
            return ""
        return ("" if self.stamped else "~") + instant(self.at_ns, date=False)


def log_lines(incident: Incident, at_ns: int | None, most: int) -> tuple[LoggedLine, ...]:
    """The `most` lines nearest to `at_ns` (None: the first problem) that jobs' logs and hosts have,
    in their order."""
    rows = incident.con.execute(
        f"""
        WITH lines AS (
            SELECT coalesce(at_ns, sort_ns) AS at_ns, path, line,
                coalesce('rank ' || rank, node, parse_filename(path), '') AS source,
                -- Of an exception the text is only what it says: 'tokens' of KeyError: 'tokens'.
                CASE WHEN kind = 'error' AND NOT contains(text, code) THEN code || ': ' ELSE '' END
                    || text AS text,
                list_contains($problems, kind) AS problem, at_ns IS NOT NULL AS stamped
            FROM log_events WHERE kind <> 'echo' AND text IS NOT NULL
            UNION ALL
            SELECT at_ns, path, line, node, text, code IS NOT NULL, true FROM host_events
            WHERE text IS NOT NULL),
        numbered AS (
            SELECT *, row_number() OVER (ORDER BY at_ns NULLS LAST, path, line) AS place
            FROM lines),
        nearest AS (
            SELECT * FROM numbered ORDER BY CASE WHEN $at_ns IS NULL OR at_ns IS NULL
                THEN abs(place - coalesce((SELECT min(place) FROM numbered WHERE problem), 1))
                ELSE abs(at_ns - $at_ns) / {NS_PER_S} END, place LIMIT $most)
        SELECT at_ns, source, text, problem, stamped FROM nearest ORDER BY place
        """,
        {"problems": list(_PROBLEMS), "at_ns": at_ns, "most": most},
    ).fetchall()
    return tuple(
        LoggedLine(at, clean(str(source)), clean(str(text)), bool(problem), bool(stamped))
        for at, source, text, problem, stamped in rows
    )
