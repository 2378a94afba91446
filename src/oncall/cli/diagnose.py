"""`oncall diagnose`: recordings in, the verdict out."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from datetime import UTC, date, datetime, time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oncall.cli.interrupt import interruptible
from oncall.errors import UsageError

if TYPE_CHECKING:
    from oncall.diagnosis import Diagnosis
    from oncall.evidence.incident import Incident


class Format(StrEnum):
    """What is printed."""

    TEXT = "text"
    MARKDOWN = "markdown"
    JSON = "json"


class Colour(StrEnum):
    """When the text is coloured."""

    AUTO = "auto"
    NEVER = "never"
    ALWAYS = "always"


def diagnose(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PATH...",
            help="Recordings (files or folders, kind detected from content), a saved *.oncall, "
            "or ras://HOST:PORT.",
        ),
    ] = None,
    job: Annotated[str | None, typer.Option(help="The job, if the evidence is of several.")] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="Only the last DURATION of the evidence, e.g. 10m."),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="As it stood at TIME (UTC): 2026-11-20T03:10, or 03:10 on the last day recorded.",
        ),
    ] = None,
    rules: Annotated[
        list[Path] | None,
        typer.Option(metavar="DIR", help="More rulebooks; a later one overrides. Repeatable."),
    ] = None,
    param: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RULE.NAME=VALUE", help="A parameter, e.g. hang.hang_after=30s. Repeatable."
        ),
    ] = None,
    format: Annotated[Format, typer.Option(help="What to print.")] = Format.TEXT,  # noqa: A002
    explain: Annotated[
        bool, typer.Option("--explain", help="Show each step's fact, SQL and parameters.")
    ] = False,
    save: Annotated[
        Path | None,
        typer.Option(metavar="FILE.oncall", help="Save the whole evidence before diagnosing."),
    ] = None,
    min_coverage: Annotated[
        float,
        typer.Option(
            metavar="SHARE", min=0, max=1, help="With less of the ranks seen, silence is exit 3."
        ),
    ] = 0.9,
    color: Annotated[Colour, typer.Option(help="When to colour the text.")] = Colour.AUTO,
) -> None:
    """Say who holds up a job, why, and what to do next.

    Reads recordings that a job left behind, or a saved incident. `--at` shows the evidence as it
    stood then: later operations are not there yet, and those that ended later are in flight.
    `--since` drops what ended before, but for each rank's last operation.

    Exit codes: 0 healthy, 1 a finding, 2 usage or bad input, 3 no finding but too little seen.
    """
    if not paths:
        raise UsageError(
            "give the recordings to read: oncall diagnose PATH... "
            "(gathering from the nodes of a running job is not in this build yet)"
        )
    overrides = _overrides(param or ())
    if save is not None:
        _check_target(save)

    from oncall import diagnose as use_case
    from oncall.rules.load import apply_overrides, load_rulebooks, shipped_folder

    rulebooks = apply_overrides(load_rulebooks([shipped_folder(), *(rules or ())]), overrides)
    with _evidence(paths, job) as incident, interruptible(incident.con):
        if save is not None:
            incident.save(save)
        _look_at(incident, since, at)
        diagnosis = use_case.diagnose(incident, rulebooks, job, min_coverage=min_coverage)
    sys.stdout.write(_written(diagnosis, format, explain, color))
    if not diagnosis.findings and diagnosis.doubt:
        print(f"oncall: not called healthy: {diagnosis.doubt}", file=sys.stderr)
    raise typer.Exit(use_case.exit_code(diagnosis))


def _overrides(params: Sequence[str]) -> dict[str, str]:
    """`hang.hang_after=30s` as {"hang.hang_after": "30s"}."""
    pairs = {}
    for text in params:
        name, equals, value = text.partition("=")
        if not equals or "." not in name or not value.strip():
            raise UsageError(f"--param {text}: write RULE.NAME=VALUE, such as hang.hang_after=30s")
        pairs[name.strip()] = value.strip()
    return pairs


def _check_target(save: Path) -> None:
    """Refuse a place that cannot be written, before anything is read."""
    if save.suffix != ".oncall":
        raise UsageError(f"--save {save}: an incident file is named *.oncall")
    if not save.parent.is_dir():
        raise UsageError(f"--save {save}: there is no folder {save.parent}")
    if not os.access(save.parent, os.W_OK):
        raise UsageError(f"--save {save}: the folder {save.parent} cannot be written")
    if save.is_dir():
        raise UsageError(f"--save {save}: it is a folder; name a file in it")
    if save.exists() and not _is_incident(save):
        raise UsageError(f"--save {save}: it exists and is no incident file; it stays as it is")


def _is_incident(path: Path) -> bool:
    """Whether the content is a DuckDB file."""
    try:
        with path.open("rb") as file:
            return file.read(12)[8:] == b"DUCK"
    except OSError:
        return False


def _evidence(paths: Sequence[str], job: str | None) -> Incident:
    """The saved incident, or a new one of the recordings. The caller closes it."""
    from oncall.evidence.incident import Incident
    from oncall.ingest import detect

    places = [Path(path) for path in paths]
    saved = [found for place in places for found in _saved(place)]
    if not saved:
        incident = Incident.empty()
        try:
            detect.load(places, incident, job)
        except BaseException:
            incident.close()
            raise
        return incident
    if len(saved) > 1 or len(places) > 1:
        listed = ", ".join(str(path) for path in saved[:12])
        raise UsageError(
            f"one saved incident is diagnosed at a time, alone; choose one of: {listed}"
        )
    return Incident.open(saved[0])


def _saved(place: Path) -> list[Path]:
    """The saved incidents that `place` is or, being a folder, holds."""
    if place.is_dir():
        return sorted(path for path in place.glob("*.oncall") if _is_incident(path))
    return [place] if place.suffix == ".oncall" or _is_incident(place) else []


def _look_at(incident: Incident, since: str | None, at: str | None) -> None:
    """Narrow the evidence to what `--since` and `--at` ask for."""
    if since is None and at is None:
        return
    from oncall.evidence import window
    from oncall.units import NS_PER_S, parse_duration_ns

    first, last = window.span(incident.con)
    if first is None or last is None:
        raise UsageError("--since and --at need evidence that tells the time; this does not")
    until = last
    if at is not None:
        until = min(_instant(at, last), last)
        if until < first or _instant(at, last) > last + NS_PER_S:
            raise UsageError(f"--at {at}: the evidence is of {_utc(first)} to {_utc(last)} UTC")
        window.cut_after(incident.con, until)
    if since is not None:
        duration_ns = parse_duration_ns(since)
        if duration_ns <= 0:
            raise UsageError(f"--since {since}: a duration is above zero, such as 10m")
        window.cut_before(incident.con, until - duration_ns)


def _instant(text: str, last_ns: int) -> int:
    """Unix time in ns of an ISO 8601 date and time, or of a time on the day of `last_ns`; UTC
    unless it says otherwise."""
    try:
        if "T" in text or " " in text.strip():
            moment = datetime.fromisoformat(text.strip())
        else:
            day: date = datetime.fromtimestamp(last_ns // 10**9, UTC).date()
            moment = datetime.combine(day, time.fromisoformat(text))
    except ValueError:
        raise UsageError(f"--at {text}: write 2026-11-20T03:10:00 or 03:10:00 (UTC)") from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    # A whole second means until its end: what is on the screen as 03:10:00 is in.
    return int(moment.timestamp()) * 10**9 + (moment.microsecond * 1000 or 10**9 - 1)


def _utc(at_ns: int) -> str:
    return datetime.fromtimestamp(at_ns / 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _written(diagnosis: Diagnosis, format: Format, explain: bool, color: Colour) -> str:  # noqa: A002
    match format:
        case Format.JSON:
            from oncall.report.contract import to_json

            return to_json(diagnosis, explain=explain)
        case Format.MARKDOWN:
            from oncall.report.markdown import to_markdown

            return to_markdown(diagnosis, explain=explain)
        case Format.TEXT:
            from oncall.report.text import WIDTH, to_text

            terminal = sys.stdout.isatty()
            plain = "NO_COLOR" in os.environ or os.environ.get("TERM", "dumb") == "dumb"
            colour = color == Colour.ALWAYS or (color == Colour.AUTO and terminal and not plain)
            width = os.get_terminal_size().columns if terminal else WIDTH
            return to_text(diagnosis, explain=explain, width=width, colour=colour)
