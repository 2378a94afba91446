"""`oncall diagnose`: diagnose a running job or its recordings and print the report; of a growing
log, again each time the answer changes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oncall.cli.offers import offer_what_lies_here
from oncall.cli.options import (
    Colour,
    Format,
    HostsOption,
    InventoryOption,
    JobOption,
    ParamOption,
    RulesOption,
    Shown,
    SiteRulesOption,
    SlurmJobOption,
    SymptomOption,
    TrainingOption,
    check_target,
    parse_overrides,
    read_training,
    rulebooks_in_force,
    warn,
    with_slurm_job,
    written,
)
from oncall.cli.terminal import Interruptible, complain
from oncall.core.errors import BadInput, ExitCode, OncallError, UsageError
from oncall.core.symptom import Symptom, with_symptom
from oncall.core.units import parse_quantity

if TYPE_CHECKING:
    from oncall.core.diagnosis import Diagnosis
    from oncall.use_case.request import Request


def diagnose(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PATH...",
            help="Recordings (files or folders; the format is detected), folders of shards, a "
            "saved incident (*.oncall), a job's log, - for standard input, or ras://HOST:PORT. "
            "Default: query the nodes.",
        ),
    ] = None,
    job: JobOption = None,
    hosts: HostsOption = None,
    slurm_job: SlurmJobOption = None,
    inventory: InventoryOption = None,
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
    format: Annotated[  # noqa: A002
        Format,
        typer.Option(help="Output format; vendor: a ticket for the maker of the GPU or NIC."),
    ] = Format.TEXT,
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
    """Find what hangs or slows a job, and what to do next.

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
    if not paths and hosts is None and inventory is None:
        offer_what_lies_here()
    overrides = with_symptom(parse_overrides(param or ()), symptom)
    configured = read_training(training)
    memory_bytes = _memory_bytes(memory)
    if save is not None:
        check_target("--save", save)

    from oncall.use_case.diagnose import exit_code
    from oncall.use_case.request import OfNodes, Recorded, Request
    from oncall.views.words import doubt

    def recorded(*paths: str) -> Recorded:
        return Recorded(paths, memory_bytes, yes_risk_the_job)

    request = Request(
        recorded(*paths) if paths else OfNodes(hosts, inventory),
        rulebooks_in_force(rules, site_rules, overrides),
        job,
        since,
        at,
        configured,
        archive,
        save,
        min_coverage,
    )
    shown = Shown(format, explain or format == Format.HTML, color)
    if follow:

        def answer_to(path: str) -> tuple[Diagnosis, str]:
            return _answer(replace(request, evidence=recorded(path)), shown)

        raise typer.Exit(followed_log(paths or [], answer_to))
    try:
        diagnosis, report = _answer(request, shown)
    except OncallError as error:
        if format is Format.JSON and error.exit_code == ExitCode.BAD_INPUT:
            from oncall.render.contract import failed

            sys.stdout.write(failed(str(error)))
        raise
    sys.stdout.write(report)
    if diagnosis.result == "inconclusive" and not sys.stdout.isatty():
        complain([f"oncall: inconclusive: {doubt(diagnosis)}"])
    raise typer.Exit(exit_code(diagnosis))


def _answer(request: Request, shown: Shown) -> tuple[Diagnosis, str]:
    """The diagnosis of recordings or nodes, and its report."""
    from oncall.cli.terminal import gather_phrase, reading_phrase, status_line
    from oncall.use_case.diagnose import with_failures
    from oncall.use_case.listener import Listener
    from oncall.use_case.request import answered
    from oncall.views.words import found_so_far

    with status_line() as show:

        def warns(text: str) -> None:
            show("")
            warn(text)

        listener = Listener(
            reads=lambda paths, so_far: show(lambda: reading_phrase(paths, so_far)),
            gathers=lambda progress: show(gather_phrase(progress)),
            finds=lambda so_far: show(found_so_far(so_far)),
            warns=warns,
            interruptible=Interruptible,
        )
        drawings: Mapping[str, Sequence[str]] = {}
        with answered(request, listener) as (incident, diagnosis):
            if shown.format is Format.VENDOR:
                from oncall.render.text.vendor import vendor_ticket

                return diagnosis, vendor_ticket(incident, diagnosis)
            if shown.explain:
                from oncall.render.text.drawings import drawings_of

                drawings = drawings_of(incident, diagnosis)
                coverage = with_failures(diagnosis.coverage, incident)
                diagnosis = replace(diagnosis, coverage=coverage)
    return diagnosis, written(diagnosis, shown, drawings)


def _memory_bytes(memory: str | None) -> int | None:
    """The memory that was asked for."""
    if memory is None:
        return None
    quantity = parse_quantity(memory)
    if quantity.dimension != "bytes" or not int(quantity.value) > 0:
        raise UsageError(f"--memory {memory}: expected a size, such as 1GB or 512MiB")
    return int(quantity.value)


_EVERY_S = 3.0
_REST = 1  # times as long as an answer took: a large log is read again from its beginning

Answer = Callable[[str], "tuple[Diagnosis, str]"]


def followed_log(paths: list[str], answer: Answer, every_s: float = _EVERY_S) -> ExitCode:
    """Print the answer to the one log in `paths`, and again each time it changes, until ctrl-C;
    returns the exit code of the last one. `answer` diagnoses a file and gives its report too.
    Raises UsageError for anything but one file."""
    from oncall.importers.logs.following import followed
    from oncall.use_case.diagnose import exit_code

    if len(paths) != 1 or paths[0] == "-" or Path(paths[0]).is_dir():
        raise UsageError("--follow needs one growing log: oncall diagnose slurm-4711.out --follow")
    code, last = ExitCode.TOO_LITTLE_COVERAGE, None
    print(f"oncall: following {paths[0]}; press Ctrl-C to end", file=sys.stderr)
    try:
        with followed(Path(paths[0])) as log:
            while True:
                took_s = 0.0
                if log.read_on():
                    began_s = time.monotonic()
                    found = _answered(answer, log.copy)
                    took_s = time.monotonic() - began_s
                    if found is not None and _kernel_of(found[0]) != last:
                        diagnosis, report = found
                        last, code = _kernel_of(diagnosis), exit_code(diagnosis)
                        print(f"── {datetime.now(UTC):%H:%M:%S} UTC ──", file=sys.stderr)
                        sys.stdout.write(report)
                        sys.stdout.flush()
                time.sleep(max(every_s, _REST * took_s))
    except KeyboardInterrupt:
        return code


def _answered(answer: Answer, copy: Path) -> tuple[Diagnosis, str] | None:
    """None while the log has too little in it to be known as one."""
    try:
        return answer(str(copy))
    except BadInput:
        return None


def _kernel_of(diagnosis: Diagnosis) -> tuple[object, ...]:
    """What makes an answer another one; that a log has grown does not."""
    found = [
        (one.rulebook, one.verdict, [sorted(map(str, blame.where.items())) for blame in one.blame])
        for one in diagnosis.findings
    ]
    return (diagnosis.result, found)
