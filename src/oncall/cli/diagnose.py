"""`oncall diagnose`: diagnose a running job or its recordings and print the report."""

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

from oncall.cli.interrupt import interruptible
from oncall.cli.options.archives import recall_archive
from oncall.cli.options.hosts import HostsOption, SlurmJobOption, with_slurm_job
from oncall.cli.options.instant import parse_instant
from oncall.cli.options.rulebooks import (
    ParamOption,
    RulesOption,
    SiteRulesOption,
    SymptomOption,
    rulebooks_in_force,
)
from oncall.cli.options.training import TrainingOption, read_training
from oncall.cli.status_line import status_line
from oncall.core.errors import ExitCode, OncallError, UsageError
from oncall.core.symptom import Symptom, with_symptom

if TYPE_CHECKING:
    from oncall.core.diagnosis import Diagnosis
    from oncall.evidence.incident import Incident


class Format(StrEnum):
    """The output format."""

    TEXT = "text"
    MARKDOWN = "markdown"
    JSON = "json"


class Colour(StrEnum):
    """When to colour the text."""

    AUTO = "auto"
    NEVER = "never"
    ALWAYS = "always"


def diagnose(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PATH...",
            help="Recordings (files or folders; the format is detected), a folder of shards, a "
            "saved incident (*.oncall), a job's log, - for standard input, or ras://HOST:PORT. "
            "Default: query the nodes.",
        ),
    ] = None,
    job: Annotated[
        str | None, typer.Option(metavar="NAME", help="Job to use, if there are several.")
    ] = None,
    hosts: HostsOption = None,
    slurm_job: SlurmJobOption = None,
    inventory: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File that lists the nodes to query.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="Use only the last DURATION of the evidence. Default: 10m from nodes and "
            "shards, everything from recordings.",
        ),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Diagnose the job as of TIME (UTC): 2026-11-20T03:10, or 03:10 on the last "
            "recorded day.",
        ),
    ] = None,
    rules: RulesOption = None,
    site_rules: SiteRulesOption = True,
    param: ParamOption = None,
    symptom: SymptomOption = Symptom.UNKNOWN,
    training: TrainingOption = None,
    format: Annotated[Format, typer.Option(help="Output format.")] = Format.TEXT,  # noqa: A002
    explain: Annotated[
        bool,
        typer.Option(
            "--explain",
            help="Show each step's fact, SQL and parameters, and drawings of what the ranks sent, "
            "computed and waited for.",
        ),
    ] = False,
    save: Annotated[
        Path | None,
        typer.Option(metavar="FILE.oncall", help="Save all evidence before diagnosing."),
    ] = None,
    min_coverage: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            min=0,
            max=1,
            help="Smallest share of ranks seen for which no finding means healthy; below it, "
            "exit with 3.",
        ),
    ] = 0.9,
    memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Memory for the tables of recordings, such as 1GB; what does not fit is kept in "
            "$TMPDIR meanwhile. Default: a quarter of the machine's, or of the container's.",
        ),
    ] = None,
    color: Annotated[Colour, typer.Option(help="When to colour the text.")] = Colour.AUTO,
    archive: Annotated[
        str | None,
        typer.Option(
            "--archive",
            metavar="PLACE",
            help="Say of each finding whether the archive has it already. Default: `place` under "
            "[archive] of the configuration, if set.",
        ),
    ] = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow",
            help="Keep reading one growing log and print the answer again when it changes, until "
            "Ctrl-C.",
        ),
    ] = False,
    yes_risk_the_job: Annotated[
        bool,
        typer.Option(
            "--yes-risk-the-job",
            help="Query ras:// even if NCCL is older than 2.28.7; the query may crash the job.",
        ),
    ] = False,
) -> None:
    """Find what hangs or slows a job, and say what to do next.

    Queries the nodes of a running job, or reads recordings or a saved incident. Press Ctrl-C while
    nodes are queried to go on with what has arrived.

    `--at` hides operations that started after TIME and shows those that ended after it as in
    flight. `--since` drops what ended before the window, except each rank's last operation.

    Findings of the site's rulebooks count like those of the shipped ones. A site rulebook with
    errors is reported and skipped; the shipped one of the same name runs instead.

    Exit codes are listed in `oncall --help`.
    """
    hosts = with_slurm_job(hosts, slurm_job)
    if paths and (hosts is not None or inventory is not None):
        raise UsageError("give either PATH... to read recordings or --hosts to query nodes")
    overrides = with_symptom(parse_overrides(param or ()), symptom)
    configured = read_training(training)
    memory_bytes = _memory_bytes(memory)
    if save is not None:
        check_target("--save", save)

    from oncall import diagnose as use_case
    from oncall.evidence.job_configuration import apply_training
    from oncall.views.words import found_so_far

    read = rulebooks_in_force(rules, site_rules, overrides)

    def answer(paths: Sequence[str] | None) -> tuple[Diagnosis, str]:
        """The diagnosis of recordings or nodes, and its report."""
        with ExitStack() as stack:
            shards = shards_in(paths or ())
            show = stack.enter_context(status_line())
            if paths and not shards:
                show(f"reading {' '.join(paths)}")
                incident = stack.enter_context(
                    read_evidence(paths, job, yes_risk_the_job, memory_bytes)
                )
                found_job, window, scheduler = job, since, None
            else:
                from oncall.cli.gathering import Wanted, gather_fleet, read_shards

                wanted = Wanted(job, since, at)
                if shards:
                    gathered = read_shards(shards, wanted, read.in_force)
                else:
                    gathered = gather_fleet(wanted, hosts, inventory, read.in_force)
                incident = stack.enter_context(gathered.incident)
                found_job, scheduler = gathered.job, gathered.scheduler
                window = None  # already applied by the query
            stack.enter_context(interruptible(incident.con))
            if configured is not None:
                apply_training(incident, configured, found_job)
            recall_archive(incident, archive)
            if save is not None:
                incident.save(save)
            _narrow(incident, window, at)
            diagnosis = use_case.diagnose(
                incident,
                read.in_force,
                found_job,
                min_coverage=min_coverage,
                set_aside=read.skipped,
                scheduler=scheduler,
                progress=lambda so_far: show(found_so_far(so_far)),
            )
            drawings: Mapping[str, Sequence[str]] = {}
            if explain:
                from oncall.render.text.drawings import drawings_of
                from oncall.render.text.encoding import is_plain

                plain = is_plain(sys.stdout.encoding)
                drawings = drawings_of(incident, diagnosis, plain=plain)
                coverage = use_case.with_failures(diagnosis.coverage, incident)
                diagnosis = replace(diagnosis, coverage=coverage)
        return diagnosis, written(diagnosis, format, explain, color, drawings)

    if follow:
        from oncall.cli.follow import follow as follow_log

        raise typer.Exit(follow_log(paths or [], lambda path: answer([path])))
    try:
        diagnosis, report = answer(paths)
    except OncallError as error:
        if format is Format.JSON and error.exit_code == ExitCode.BAD_INPUT:
            from oncall.render.contract import failed

            sys.stdout.write(failed(str(error)))
        raise
    sys.stdout.write(report)
    if diagnosis.result == "inconclusive":
        print(f"oncall: inconclusive: {diagnosis.doubt}", file=sys.stderr)
    raise typer.Exit(use_case.exit_code(diagnosis))


def parse_overrides(params: Sequence[str]) -> dict[str, str]:
    """`hang.hang_after=30s` as {"hang.hang_after": "30s"}."""
    pairs = {}
    for text in params:
        name, equals, value = text.partition("=")
        if not equals or "." not in name or not value.strip():
            raise UsageError(
                f"--param {text}: expected RULE.NAME=VALUE, such as hang.hang_after=30s"
            )
        pairs[name.strip()] = value.strip()
    return pairs


def _memory_bytes(memory: str | None) -> int | None:
    """The memory that was asked for."""
    from oncall.core.units import parse_quantity

    if memory is None:
        return None
    quantity = parse_quantity(memory)
    if quantity.dimension != "bytes" or not int(quantity.value) > 0:
        raise UsageError(f"--memory {memory}: expected a size, such as 1GB or 512MiB")
    return int(quantity.value)


def check_target(option: str, save: Path) -> None:
    """Raise UsageError for a path that cannot be written, before anything is read."""
    if save.suffix != ".oncall":
        raise UsageError(f"{option} {save}: the file name must end in .oncall")
    if not save.parent.is_dir():
        raise UsageError(f"{option} {save}: no such folder: {save.parent}")
    if not os.access(save.parent, os.W_OK):
        raise UsageError(f"{option} {save}: no permission to write in {save.parent}")
    if save.is_dir():
        raise UsageError(f"{option} {save}: is a folder; give a file in it")
    if save.exists() and not _is_incident(save):
        raise UsageError(f"{option} {save}: exists and is not an incident file; not overwritten")


def _is_incident(path: Path) -> bool:
    """Whether the content is a DuckDB file."""
    from oncall.core.errors import Unreadable
    from oncall.importers.files import head

    try:
        return head(path, 12)[8:] == b"DUCK"
    except Unreadable:
        return False


def read_evidence(
    paths: Sequence[str],
    job: str | None,
    risk_the_job: bool = False,
    memory_bytes: int | None = None,
) -> Incident:
    """The saved incident, or a new one made from the recordings, in `memory_bytes` or a quarter of
    the machine's memory. The caller closes it."""
    from oncall.evidence.incident import Incident
    from oncall.evidence.room import quarter_bytes
    from oncall.importers import detect
    from oncall.importers.logs.standard_input import as_file

    if "-" in paths:
        with as_file(sys.stdin.buffer) as place:
            others = [path for path in paths if path != "-"]
            return read_evidence([*others, str(place)], job, risk_the_job, memory_bytes)
    memory_bytes = memory_bytes or quarter_bytes()
    places = [Path(path) for path in paths]
    saved = [found for place in places for found in _saved(place)]
    if not saved:
        incident = Incident.empty()
        try:
            incident.bound_memory(memory_bytes)
            detect.load(places, incident, job, risk_the_job=risk_the_job)
        except BaseException:
            incident.close()
            raise
        return incident
    if len(saved) > 1 or len(places) > 1:
        listed = ", ".join(str(path) for path in saved[:12])
        raise UsageError(f"only one saved incident can be diagnosed at a time; give one: {listed}")
    return Incident.in_place(saved[0], memory_bytes=memory_bytes)


def shards_in(paths: Sequence[str]) -> dict[str, Path]:
    """The nodes whose shards the one given folder contains, with the folder of each."""
    place = Path(paths[0]) if len(paths) == 1 else None
    if place is None or not place.is_dir():
        return {}
    from oncall.node.store.catalog import nodes_in

    return nodes_in(place)


def _saved(place: Path) -> list[Path]:
    """`place` itself if it is a saved incident, or those in the folder `place`."""
    from oncall.importers.files import files_in

    if place.is_dir():
        return [path for path in files_in(place, ("oncall",)) if _is_incident(path)]
    return [place] if place.suffix == ".oncall" or _is_incident(place) else []


def _narrow(incident: Incident, since: str | None, at: str | None) -> None:
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


def written(
    diagnosis: Diagnosis,
    format: Format,  # noqa: A002
    explain: bool,
    color: Colour,
    drawings: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> str:
    """The report as text (as wide as the terminal), Markdown or JSON."""
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
