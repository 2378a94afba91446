"""`oncall diagnose`: diagnose a running job or its recordings and print the report."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oncall.cli.interrupt import interruptible
from oncall.cli.options.archives import recall_archive
from oncall.cli.options.hosts import HostsOption, SlurmJobOption, with_slurm_job
from oncall.cli.options.incident_file import check_target
from oncall.cli.options.recordings import narrow, parse_memory_bytes, read_evidence, shards_in
from oncall.cli.options.report import Colour, Format, written
from oncall.cli.options.rulebooks import (
    ParamOption,
    RulesOption,
    SiteRulesOption,
    SymptomOption,
    parse_overrides,
    rulebooks_in_force,
    warn,
)
from oncall.cli.options.training import TrainingOption, read_training
from oncall.cli.status_line import status_line
from oncall.core.errors import ExitCode, OncallError, UsageError
from oncall.core.symptom import Symptom, with_symptom

if TYPE_CHECKING:
    from oncall.core.diagnosis import Diagnosis
    from oncall.evidence.incident import Incident


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
            help="Mention earlier faults of the same component from this archive. Default: "
            "`place` under [archive] of the configuration, if set.",
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
    memory_bytes = parse_memory_bytes(memory)
    if save is not None:
        check_target("--save", save)

    from oncall.evidence.job_configuration import apply_training
    from oncall.use_case import diagnose as use_case
    from oncall.views.words import doubt, found_so_far

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
                for misfit in apply_training(incident, configured, found_job):
                    warn(f"--training: {misfit}")
            recall_archive(incident, archive)
            if save is not None:
                incident.save(save)
            narrow(incident, window, at)
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
                drawings = _drawings(incident, diagnosis)
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
        print(f"oncall: inconclusive: {doubt(diagnosis)}", file=sys.stderr)
    raise typer.Exit(use_case.exit_code(diagnosis))


def _drawings(incident: Incident, diagnosis: Diagnosis) -> Mapping[str, Sequence[str]]:
    """What the ranks sent, computed and waited for, as the terminal can show it."""
    from oncall.render.text.drawings import drawings_of
    from oncall.render.text.encoding import is_plain

    return drawings_of(incident, diagnosis, plain=is_plain(sys.stdout.encoding))
