"""`oncall draw traffic`: what ranks sent, microsecond by microsecond, as text or a picture."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oncall.cli.interrupt import interruptible
from oncall.cli.pictures import Drawing, check_target, drawable, show
from oncall.core.errors import UsageError

if TYPE_CHECKING:
    from oncall.core.diagnosis import Finding
    from oncall.evidence.incident import Incident


def traffic(
    path: Annotated[Path, typer.Argument(metavar="FILE.oncall", help="A saved incident.")],
    job: Annotated[str | None, typer.Option(help="The job, if there are several.")] = None,
    comm: Annotated[
        str | None, typer.Option(metavar="HASH", help="A communicator, such as 0x6bca3dd2226c3b21.")
    ] = None,
    seq: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="The operation's number on it; of Sends the how many-th call. Default: "
            "one that is not over, else the longest.",
        ),
    ] = None,
    map_: Annotated[
        bool, typer.Option("--map", help="Who sends to whom, instead of rates over time.")
    ] = False,
    resolution: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Of a column or point, such as 32us.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="A picture, .svg or .png; default: text here."
        ),
    ] = None,
) -> None:
    """Draw what each rank sent in an operation, or with --map who sends to whom.

    Without --comm it is the operation of the first finding about traffic, with the blamed ranks
    marked; --map is then of the whole job. A .png is made by `rsvg-convert`, where it is installed.
    """  # fmt: skip
    from oncall.evidence.incident import Incident
    from oncall.views.traffic.operations import NO_TRAFFIC, has_traffic

    if output is not None:
        check_target(output)
    if seq is not None and comm is None:
        raise UsageError("--seq needs --comm: each communicator counts its operations on its own")
    wanted = _Wanted(
        None if comm is None else _communicator(comm),
        seq,
        None if resolution is None else _resolution_ns(resolution),
    )
    with Incident.open(path) as incident, interruptible(incident.con), drawable():
        finding = _finding(incident, job, wanted.comm)
        if not has_traffic(incident):
            raise UsageError(f"{path}: {NO_TRAFFIC}")
        drawing = (_map if map_ else _curves)(incident, finding, wanted)
    show(drawing, output)


@dataclass(frozen=True)
class _Wanted:
    """What to draw, as the options say it."""

    comm: int | None
    seq: int | None
    resolution_ns: int | None


def _curves(incident: Incident, finding: Finding | None, wanted: _Wanted) -> Drawing:
    from oncall.render.svg import traffic as svg
    from oncall.render.text import traffic as text
    from oncall.views.traffic import operations as evidence

    operation = None
    if wanted.comm is not None:
        operation = evidence.find_operation(incident, wanted.comm, wanted.seq)
    elif finding is not None:
        operation = evidence.told_operation(incident, finding)
    if operation is None:
        raise UsageError("no finding speaks of traffic: name a communicator with --comm")
    sent = evidence.operation_traffic(incident, operation, _blamed(incident, finding))
    resolution_ns = wanted.resolution_ns
    return Drawing(
        partial(text.curve_lines, sent, resolution_ns=resolution_ns),
        partial(svg.curves_svg, sent, resolution_ns),
    )


def _map(incident: Incident, finding: Finding | None, wanted: _Wanted) -> Drawing:
    from oncall.render.svg import traffic as svg
    from oncall.render.text import traffic as text
    from oncall.views.traffic import operations as evidence

    operation = None
    if wanted.comm is not None and wanted.seq is not None:
        operation = evidence.find_operation(incident, wanted.comm, wanted.seq)
    blamed = _blamed(incident, finding)
    sent = evidence.traffic_map(incident, wanted.comm, operation, blamed)
    return Drawing(partial(text.map_lines, sent), partial(svg.map_svg, sent))


def _blamed(incident: Incident, finding: Finding | None) -> frozenset[int]:
    from oncall.views.traffic.operations import blamed_ranks

    return frozenset() if finding is None else blamed_ranks(incident, finding)


def _finding(incident: Incident, job: str | None, comm: int | None) -> Finding | None:
    """The first finding about traffic; of those on the communicator, if one is named."""
    from oncall.cli.rulebooks import rulebooks_in_force
    from oncall.diagnose import diagnose
    from oncall.views.traffic.operations import RULEBOOK

    read = rulebooks_in_force((), True, {})
    rulebooks = [book for book in read.in_force if book.name == RULEBOOK]
    diagnosis = diagnose(incident, rulebooks, job)
    named = [
        one
        for one in diagnosis.findings
        if comm is None or any(int(b.where.get("comm", "0x0"), 16) == comm for b in one.blame)
    ]
    return next(iter(named), None)


def _communicator(text: str) -> int:
    try:
        return int(text, 16)
    except ValueError:
        raise UsageError(f"--comm {text}: write its hash, such as 0x6bca3dd2226c3b21") from None


def _resolution_ns(text: str) -> int:
    from oncall.core.units import parse_duration_ns

    duration_ns = parse_duration_ns(text)
    if duration_ns <= 0:
        raise UsageError(f"--resolution {text}: a duration is above zero, such as 32us")
    return duration_ns
