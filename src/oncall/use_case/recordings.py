"""Evidence that was recorded: how it is read, in how much memory, and which of its time."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import TYPE_CHECKING

from oncall.core.errors import Unreadable, UsageError

if TYPE_CHECKING:
    from oncall.evidence.incident import Incident
    from oncall.importers.so_far import ReadSoFar


def read_evidence(
    paths: Sequence[str],
    job: str | None,
    risk_the_job: bool = False,
    memory_bytes: int | None = None,
    so_far: ReadSoFar | None = None,
) -> Incident:
    """The saved incident, or a new one made from the recordings, in `memory_bytes` or a quarter of
    the machine's memory. `so_far` counts what is read. The caller closes it."""
    from oncall.core.room import quarter_bytes
    from oncall.evidence.incident import Incident
    from oncall.importers import detect
    from oncall.importers.logs.following import as_file

    if "-" in paths:
        with as_file(sys.stdin.buffer) as place:
            others = [path for path in paths if path != "-"]
            return read_evidence([*others, str(place)], job, risk_the_job, memory_bytes, so_far)
    memory_bytes = memory_bytes or quarter_bytes()
    places = [Path(path) for path in paths]
    if (saved := saved_incident(places)) is not None:
        return Incident.in_place(saved, memory_bytes=memory_bytes)
    with Incident.empty().handed_on() as incident:
        incident.bound_memory(memory_bytes)
        detect.load(places, incident, job, risk_the_job=risk_the_job, so_far=so_far)
        return incident


def saved_incident(paths: Sequence[Path]) -> Path | None:
    """The saved incident among the paths, or in the one folder; None if they are recordings.

    Raises UsageError if there are several, or others beside it.
    """
    saved = [found for path in paths for found in _saved(path)]
    if not saved:
        return None
    if len(saved) > 1 or len(paths) > 1:
        listed = ", ".join(map(str, saved[:12]))
        raise UsageError(f"only one saved incident can be read at a time; give one: {listed}")
    return saved[0]


def is_incident(path: Path) -> bool:
    """Whether the content is a DuckDB file."""
    from oncall.importers.files import head

    try:
        return head(path, 12)[8:] == b"DUCK"
    except Unreadable:
        return False


def shards_in(paths: Sequence[str]) -> dict[str, Path]:
    """The nodes whose shards the given folders contain, with the folder of each; none where these
    are recordings. Raises UsageError if some are and some are not."""
    from oncall.node.store.catalog import nodes_in

    found = {path: nodes_in(Path(path)) if Path(path).is_dir() else {} for path in paths}
    nodes = {node: place for each in found.values() for node, place in each.items()}
    others = [path for path, each in found.items() if not each]
    if nodes and others:
        raise UsageError(
            f"{next(path for path in paths if found[path])} holds shards of collectors, "
            f"{others[0]} does not: diagnose them one after the other"
        )
    return nodes


def _saved(place: Path) -> list[Path]:
    """`place` itself if it is a saved incident, or those in the folder `place`."""
    from oncall.importers.files import files_in

    if place.is_dir():
        return [path for path in files_in(place, ("oncall",)) if is_incident(path)]
    return [place] if place.suffix == ".oncall" or is_incident(place) else []


def narrow(incident: Incident, since: str | None, at: str | None) -> None:
    """Narrow the evidence to the window of `--since` and `--at`."""
    if since is None and at is None:
        return
    from oncall.core.units import NS_PER_S, parse_duration_ns
    from oncall.evidence import window

    first, last = window.span(incident.con)
    if first is None or last is None:
        raise UsageError("--since and --at need timestamps; this evidence has none")
    until = last
    if at is not None:
        until = min(parse_instant(at, last), last)
        if until < first or parse_instant(at, last) > last + NS_PER_S:
            raise UsageError(f"--at {at}: the evidence spans {_utc(first)} to {_utc(last)} UTC")
        window.cut_after(incident.con, until)
    if since is not None:
        duration_ns = parse_duration_ns(since)
        if duration_ns <= 0:
            raise UsageError(f"--since {since}: the duration must be positive, such as 10m")
        window.cut_before(incident.con, until - duration_ns)


def _utc(at_ns: int) -> str:
    return datetime.fromtimestamp(at_ns / 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def parse_instant(text: str, last_ns: int) -> int:
    """Unix time in ns of an ISO 8601 date and time, or of a time on the day of `last_ns`; UTC
    unless it has an offset. Raises UsageError."""
    try:
        if "T" in text or " " in text.strip():
            moment = datetime.fromisoformat(text.strip())
        else:
            day: date = datetime.fromtimestamp(last_ns // 10**9, UTC).date()
            moment = datetime.combine(day, time.fromisoformat(text))
    except ValueError:
        raise UsageError(
            f"--at {text}: expected a time such as 2026-11-20T03:10:00 or 03:10:00 (UTC)"
        ) from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    # A whole second includes all of it: what the screen shows as 03:10:00 is in the window.
    return int(moment.timestamp()) * 10**9 + (moment.microsecond * 1000 or 10**9 - 1)
