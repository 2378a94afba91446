"""`oncall diagnose`: a running job's nodes or its recordings in, the verdict out."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated

import typer

from oncall.cli.instant import parse_instant
from oncall.cli.interrupt import interruptible
from oncall.cli.rulebooks import More, WithSite, rulebooks_in_force
from oncall.cli.training import ToldTraining, read_training
from oncall.core.errors import UsageError

if TYPE_CHECKING:
    from oncall.core.diagnosis import Diagnosis
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
            help="Recordings (files or folders, kind detected from content), a folder of shards, "
            "a saved *.oncall, or ras://HOST:PORT. None: the nodes are asked.",
        ),
    ] = None,
    job: Annotated[str | None, typer.Option(help="The job, if there are several.")] = None,
    hosts: Annotated[
        str | None,
        typer.Option(
            metavar="NODESET", help="The nodes to ask, such as gpu[001-512], or local:DIR/*."
        ),
    ] = None,
    inventory: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A file with the nodes to ask.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION", help="Only the last DURATION of the evidence; of nodes 10m."
        ),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="As it stood at TIME (UTC): 2026-11-20T03:10, or 03:10 on the last day recorded.",
        ),
    ] = None,
    rules: More = None,
    site_rules: WithSite = True,
    param: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RULE.NAME=VALUE", help="A parameter, e.g. hang.hang_after=30s. Repeatable."
        ),
    ] = None,
    training: ToldTraining = None,
    format: Annotated[Format, typer.Option(help="What to print.")] = Format.TEXT,  # noqa: A002
    explain: Annotated[
        bool,
        typer.Option(
            "--explain",
            help="Show each step's fact, SQL and parameters, and pictures: what ranks sent, "
            "computed and waited for.",
        ),
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
    yes_risk_the_job: Annotated[
        bool,
        typer.Option(
            "--yes-risk-the-job",
            help="Ask ras:// of an NCCL older than 2.28.7, which that may crash (see the guide).",
        ),
    ] = False,
) -> None:
    """Say who holds up a job, why, and what to do next.

    Asks the nodes of a running job, or reads recordings that one left behind or a saved incident.
    `--at` shows the evidence as it stood then: later operations are not there yet, and those that
    ended later are in flight. `--since` drops what ended before, but for each rank's last
    operation. While nodes are asked, Ctrl-C goes on with what has arrived.

    What a site's rulebooks conclude counts like what is shipped. One that is wrong is told and
    left out, and the shipped one of that name is asked instead.

    Exit codes: 0 healthy, 1 a finding, 2 usage or bad input, 3 no finding, but too little was seen
    or what was seen cannot be trusted.
    """
    if paths and (hosts is not None or inventory is not None):
        raise UsageError(
            "recordings are read, or nodes are asked: give PATH... or --hosts, not both"
        )
    overrides = parse_overrides(param or ())
    told = read_training(training)
    if save is not None:
        check_target("--save", save)

    from oncall import diagnose as use_case
    from oncall.evidence.told import tell

    read = rulebooks_in_force(rules, site_rules, overrides)
    rulebooks = read.in_force
    with ExitStack() as stack:
        shards = shards_in(paths or ())
        if paths and not shards:
            incident = stack.enter_context(read_evidence(paths, job, yes_risk_the_job))
        else:
            from oncall.cli.gathering import Wanted, gather_fleet, read_shards

            wanted = Wanted(job, since, at)
            if shards:
                answer = read_shards(shards, wanted, rulebooks)
            else:
                answer = gather_fleet(wanted, hosts, inventory, rulebooks)
            incident, job = stack.enter_context(answer.incident), answer.job
            since = None  # only that was asked for
        stack.enter_context(interruptible(incident.con))
        if told is not None:
            tell(incident, told, job)
        if save is not None:
            incident.save(save)
        _look_at(incident, since, at)
        diagnosis = use_case.diagnose(
            incident, rulebooks, job, min_coverage=min_coverage, set_aside=read.skipped
        )
        if explain:
            from oncall.render.text.drawings import drawings_of
            from oncall.render.text.encoding import is_plain

            plain = is_plain(sys.stdout.encoding)
            drawings = drawings_of(incident, diagnosis, plain=plain)
            coverage = use_case.with_failures(diagnosis.coverage, incident)
            diagnosis = replace(diagnosis, coverage=coverage)
        else:
            drawings = {}
    sys.stdout.write(written(diagnosis, format, explain, color, drawings))
    if not diagnosis.findings and diagnosis.doubt:
        print(f"oncall: not called healthy: {diagnosis.doubt}", file=sys.stderr)
    raise typer.Exit(use_case.exit_code(diagnosis))


def parse_overrides(params: Sequence[str]) -> dict[str, str]:
    """`hang.hang_after=30s` as {"hang.hang_after": "30s"}."""
    pairs = {}
    for text in params:
        name, equals, value = text.partition("=")
        if not equals or "." not in name or not value.strip():
            raise UsageError(f"--param {text}: write RULE.NAME=VALUE, such as hang.hang_after=30s")
        pairs[name.strip()] = value.strip()
    return pairs


def check_target(option: str, save: Path) -> None:
    """Refuse a place that cannot be written, before anything is read."""
    if save.suffix != ".oncall":
        raise UsageError(f"{option} {save}: an incident file is named *.oncall")
    if not save.parent.is_dir():
        raise UsageError(f"{option} {save}: there is no folder {save.parent}")
    if not os.access(save.parent, os.W_OK):
        raise UsageError(f"{option} {save}: the folder {save.parent} cannot be written")
    if save.is_dir():
        raise UsageError(f"{option} {save}: it is a folder; name a file in it")
    if save.exists() and not _is_incident(save):
        raise UsageError(f"{option} {save}: it exists and is no incident file; it stays as it is")


def _is_incident(path: Path) -> bool:
    """Whether the content is a DuckDB file."""
    from oncall.core.errors import Unreadable
    from oncall.importers.files import head

    try:
        return head(path, 12)[8:] == b"DUCK"
    except Unreadable:
        return False


def read_evidence(paths: Sequence[str], job: str | None, risk_the_job: bool = False) -> Incident:
    """The saved incident, or a new one of the recordings. The caller closes it."""
    from oncall.evidence.incident import Incident
    from oncall.importers import detect

    places = [Path(path) for path in paths]
    saved = [found for place in places for found in _saved(place)]
    if not saved:
        incident = Incident.empty()
        try:
            detect.load(places, incident, job, risk_the_job=risk_the_job)
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


def shards_in(paths: Sequence[str]) -> dict[str, Path]:
    """The nodes whose shards lie in the one folder that is given, with the folder of each."""
    place = Path(paths[0]) if len(paths) == 1 else None
    if place is None or not place.is_dir():
        return {}
    from oncall.fleet.local import nodes_in

    return nodes_in(place)


def _saved(place: Path) -> list[Path]:
    """The saved incidents that `place` is or, being a folder, holds."""
    from oncall.importers.files import files_in

    if place.is_dir():
        return [path for path in files_in(place, ("oncall",)) if _is_incident(path)]
    return [place] if place.suffix == ".oncall" or _is_incident(place) else []


def _look_at(incident: Incident, since: str | None, at: str | None) -> None:
    """Narrow the evidence to what `--since` and `--at` ask for."""
    if since is None and at is None:
        return
    from oncall.core.units import NS_PER_S, parse_duration_ns
    from oncall.evidence import window

    first, last = window.span(incident.con)
    if first is None or last is None:
        raise UsageError("--since and --at need evidence that tells the time; this does not")
    until = last
    if at is not None:
        until = min(parse_instant(at, last), last)
        if until < first or parse_instant(at, last) > last + NS_PER_S:
            raise UsageError(f"--at {at}: the evidence is of {_utc(first)} to {_utc(last)} UTC")
        window.cut_after(incident.con, until)
    if since is not None:
        duration_ns = parse_duration_ns(since)
        if duration_ns <= 0:
            raise UsageError(f"--since {since}: a duration is above zero, such as 10m")
        window.cut_before(incident.con, until - duration_ns)


def _utc(at_ns: int) -> str:
    return datetime.fromtimestamp(at_ns / 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def written(
    diagnosis: Diagnosis,
    format: Format,  # noqa: A002
    explain: bool,
    color: Colour,
    drawings: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> str:
    """The report as text, Markdown or JSON; text as wide as the terminal."""
    match format:
        case Format.JSON:
            from oncall.render.contract import to_json

            return to_json(diagnosis, explain=explain)
        case Format.MARKDOWN:
            from oncall.render.markdown import to_markdown

            return to_markdown(diagnosis, explain=explain, drawings=drawings)
        case Format.TEXT:
            from oncall.render.text.report import WIDTH, to_text

            terminal = sys.stdout.isatty()
            plain = "NO_COLOR" in os.environ or os.environ.get("TERM", "dumb") == "dumb"
            colour = color == Colour.ALWAYS or (color == Colour.AUTO and terminal and not plain)
            width = os.get_terminal_size().columns if terminal else WIDTH
            return to_text(
                diagnosis, explain=explain, width=width, colour=colour, drawings=drawings
            )
