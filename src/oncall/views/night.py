"""The story of the night as the evidence tells it: from when it is, what hosts reported, when each
fault began and what follows from it, up to when it is; and the lines of logs around a moment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oncall.core.diagnosis import Diagnosis, Severity
from oncall.core.printable import clean
from oncall.core.units import NS_PER_S
from oncall.views import words
from oncall.views.coverage_words import seen_phrase
from oncall.views.words import instant

if TYPE_CHECKING:
    from oncall.evidence.incident import Incident  # brings DuckDB, which the lines do without
    from oncall.views.snapshot import Ended

_MOST_EVENTS = 40  # of hosts, by node and kind: a night in which more broke is read by its findings
_MOST_FINDINGS = 30


@dataclass(frozen=True)
class NightLine:
    """Something that happened at an instant, Unix ns."""

    at_ns: int
    text: str
    severity: Severity = "info"
    dated: bool = True  # whether it is known to have happened then

    @property
    def clock(self) -> str:
        return words.instant(self.at_ns, date=False) if self.dated else ""


def night_lines(
    incident: Incident,
    diagnosis: Diagnosis,
    first_ns: int | None,
    last_ns: int | None,
    ended: Sequence[Ended] = (),
) -> tuple[NightLine, ...]:
    """What is known of the job from `first_ns` to `last_ns`, in order. Findings that say nothing of
    when they began come with what they follow from, else at the end; of what has `ended`, when it
    did."""
    lines = [*_host_events(incident), *_findings(diagnosis, last_ns)]
    for one in ended:
        said = f"ended after {words.span_phrase(one.until_ns - one.since_ns)}"
        lines.append(NightLine(one.until_ns, f"{said}: {words.sentence(one.finding)}"))
    lines += _last_completion(incident, last_ns)
    if first_ns is not None:
        lines.append(NightLine(first_ns, f"the evidence begins: {seen_phrase(diagnosis.coverage)}"))
    if last_ns is not None:
        lines.append(NightLine(last_ns, "the evidence ends"))
    ends = {first_ns: -1, last_ns: 1}  # what is said of the same instant lies between
    return tuple(sorted(lines, key=lambda one: (one.at_ns, _place(one, ends))))


def _place(one: NightLine, ends: dict[int | None, int]) -> int:
    return ends.get(one.at_ns, 0) if one.text.startswith("the evidence") else 0


def _host_events(incident: Incident) -> Iterator[NightLine]:
    """What kernels and drivers reported, the first of each kind on each node."""
    incident.is_empty("host_events")  # and its values are believable from here on
    rows = incident.con.execute(
        """
        SELECT min(at_ns) AS at_ns, node, arg_min(text, at_ns), count(*)
        FROM host_events WHERE code IS NOT NULL AND text IS NOT NULL AND at_ns IS NOT NULL
        GROUP BY node, source, code ORDER BY at_ns LIMIT ?
        """,
        [_MOST_EVENTS],
    ).fetchall()
    for at_ns, node, said, count in rows:
        more = f" ({count:,} times)" if count > 1 else ""
        yield NightLine(at_ns, clean(f"{node}: {said}") + more, "warning")


def first_completion_ns(incident: Incident, after_ns: int) -> int | None:
    """When the first operation after an instant completed, Unix ns."""
    incident.provide(("operations",))
    ((ended_ns,),) = incident.con.execute(
        "SELECT min(ended_ns) FROM operations WHERE done AND ended_ns > ?", [after_ns]
    ).fetchall()
    return int(ended_ns) if ended_ns is not None else None


def _last_completion(incident: Incident, last_ns: int | None) -> Iterator[NightLine]:
    """Since when nothing has completed, where that is long ago for this job."""
    incident.provide(("operations",))
    ((ended_ns, longest_ns),) = incident.con.execute(
        """
        SELECT max(ended_ns), max(ended_ns - before_ns) FROM (
            SELECT ended_ns, lag(ended_ns) OVER (ORDER BY ended_ns) AS before_ns
            FROM operations WHERE done AND ended_ns IS NOT NULL)
        """
    ).fetchall()
    if ended_ns is not None and last_ns is not None and last_ns - ended_ns > (longest_ns or 0):
        yield NightLine(ended_ns, "the last operation completes: none has since", "critical")


def _findings(diagnosis: Diagnosis, last_ns: int | None) -> Iterator[NightLine]:
    """Each finding when it began, with its conclusion; of a consequence, from what it follows."""
    known = {one.id: one for one in diagnosis.findings}
    for finding in diagnosis.findings[:_MOST_FINDINGS]:
        root = known.get(finding.explained_by or "")
        began = (finding.at_ns, root.at_ns if root else None, last_ns)
        at_ns = next((one for one in began if one is not None), None)
        if at_ns is None:
            continue
        why = f"(follows from {root.id} {clean(root.title)})" if root else words.conclusion(finding)
        parts = (words.sentence(finding), why)
        said = (
            f"{words.GLYPHS[finding.severity]} {(' ' if root else '. ').join(filter(None, parts))}"
        )
        yield NightLine(at_ns, said, finding.severity, dated=at_ns in began[:2])


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
        """` 02:40:11 UTC`, or `~02:40:11 UTC` of a line without a stamp of its own."""
        if self.at_ns is None:
            return ""
        return (" " if self.stamped else "~") + instant(self.at_ns, date=False)


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
