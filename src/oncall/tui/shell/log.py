"""The log's lines, and those that a new snapshot adds: the story of the night."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oncall.core.diagnosis import Severity
from oncall.core.nodeset import fold_hosts
from oncall.core.printable import clean, clean_lines
from oncall.fleet.outcome import lost_gateways_phrases
from oncall.views import words

if TYPE_CHECKING:
    from oncall.core.diagnosis import Diagnosis, Finding, Severity
    from oncall.views.snapshot import Snapshot

MOST = 500  # lines kept


@dataclass(frozen=True)
class LogLine:
    """Something that happened; `clock` is the console's, UTC."""

    clock: str
    text: str
    severity: Severity = "info"


def lines_of(clock: str, text: str, severity: Severity = "info") -> list[LogLine]:
    """A message, one line of it a line."""
    return [LogLine(clock, line, severity) for line in clean_lines(text) or [""]]


def matching(lines: Iterable[LogLine], filter_text: str) -> list[LogLine]:
    """Those that hold the text, whatever its case."""
    wanted = filter_text.casefold()
    return [line for line in lines if wanted in line.text.casefold()]


def changes(before: Snapshot | None, now: Snapshot) -> Iterator[tuple[str, Severity]]:
    """(line, how bad that news is): verdicts that came and went, nodes, collectors and gateways
    lost and back, notes of the diagnosis. The first snapshot tells its verdict and what is ill."""
    yield from _verdicts(before, now)
    yield from _nodes(before, now)
    earlier = before.diagnosis.notes if before is not None else ()
    for note in now.diagnosis.notes:
        if note not in earlier:
            yield f"note: {clean(note)}", "warning"


def _verdicts(before: Snapshot | None, now: Snapshot) -> Iterator[tuple[str, Severity]]:
    earlier = _causes(before.diagnosis) if before is not None else {}
    causes = _causes(now.diagnosis)
    for name, cause in causes.items():
        if name not in earlier:
            began = f", since {words.instant(cause.at_ns)}" if cause.at_ns is not None else ""
            glyph = words.GLYPHS[cause.severity]
            yield f"verdict: {glyph} {words.sentence(cause)}{began}", cause.severity
    over = {one.until_ns: one for one in now.ended if before is None or one not in before.ended}
    for one in over.values():
        lasted = words.span_phrase(one.until_ns - one.since_ns)
        yield f"ended after {lasted}: {words.sentence(one.finding)}", "info"
    listed = {words.who(one.finding.blame) for one in over.values()}
    for name, cause in earlier.items():
        if name not in causes and words.who(cause.blame) not in listed:
            yield f"no longer: {words.sentence(cause)}", "info"
    quiet = not causes and (
        before is None or earlier or before.diagnosis.doubt != now.diagnosis.doubt
    )
    if quiet:
        doubt: Severity = "warning" if now.diagnosis.doubt else "info"
        yield f"verdict: {words.headline(now.diagnosis)[2]}", doubt


def _causes(diagnosis: Diagnosis) -> dict[str, Finding]:
    """The root causes by what they say, without when: that moves."""
    return {
        f"{one.rulebook} {one.verdict} {words.who(one.blame)}": one
        for one in words.roots(diagnosis)
    }


def _nodes(before: Snapshot | None, now: Snapshot) -> Iterator[tuple[str, Severity]]:
    answering = {host.host for host in now.hosts if not host.silent}
    for lost, back, who in (
        ("silent", "answering again", lambda host: host.silent),
        (
            "collector dead on",
            "collector back on",
            lambda host: bool(host.collector) and not host.collector_slow,
        ),
        ("collector silent on", "collector answers again on", lambda host: host.collector_slow),
        ("slow to answer", "answering soon again", lambda host: bool(host.slowness)),
    ):
        earlier = {host.host for host in before.hosts if who(host)} if before is not None else set()
        ill = {host.host for host in now.hosts if who(host)}
        if ill - earlier:
            yield f"{lost}: {clean(fold_hosts(ill - earlier))}", "warning"
        if well := (earlier - ill) & answering:
            yield f"{back}: {clean(fold_hosts(well))}", "info"
    known = before.lost_gateways if before is not None else {}
    fresh = {one: why for one, why in now.lost_gateways.items() if one not in known}
    for phrase in lost_gateways_phrases(fresh):
        yield phrase, "warning"
    if again := known.keys() - now.lost_gateways.keys():
        yield f"gateway back: {fold_hosts(again)}", "info"
