"""`oncall draw traffic`: send rates of ranks by the microsecond, as text or a picture."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oncall.cli.draw.pictures import (
    Drawing,
    OutputOption,
    check_target,
    drawable,
    hash_of,
    show,
)
from oncall.cli.options import JobOption
from oncall.cli.terminal import Interruptible
from oncall.core.errors import UsageError

if TYPE_CHECKING:
    from oncall.core.diagnosis import Finding
    from oncall.evidence.incident import Incident


def traffic(
    path: Annotated[Path, typer.Argument(metavar="FILE.oncall", help="A saved incident.")],
    job: JobOption = None,
    comm: Annotated[
        str | None,
        typer.Option(metavar="HASH", help="Communicator hash, such as 0x6bca3dd2226c3b21."),
    ] = None,
    seq: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Sequence number of the operation on that communicator; for sends, the number "
            "of the call. Default: one in flight, else the longest.",
        ),
    ] = None,
    map_: Annotated[
        bool, typer.Option("--map", help="Draw which rank sends to which, not rates over time.")
    ] = False,
    resolution: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="Duration of a column or point, such as 32us."),
    ] = None,
    output: OutputOption = None,
) -> None:
    """Draw the send rate of each rank in an operation.

    Without --comm, draws the operation of the first finding about traffic and marks the blamed
    ranks; --map then covers the whole job. Writing a .png needs `rsvg-convert`.
    """
    from oncall.evidence.incident import Incident
    from oncall.render.svg import traffic as svg
    from oncall.render.text import traffic as text
    from oncall.views.traffic import operations as evidence

    check_target(output)
    if seq is not None and comm is None:
        raise UsageError("--seq needs --comm: each communicator numbers its own operations")
    wanted = hash_of(comm)
    resolution_ns = None if resolution is None else _resolution_ns(resolution)
    with Incident.open(path) as incident, Interruptible(incident.con), drawable():
        finding = _finding(incident, job, wanted)
        if not evidence.has_traffic(incident):
            raise UsageError(f"{path}: {evidence.NO_TRAFFIC}")
        operation = None
        if wanted is not None and not (map_ and seq is None):
            operation = evidence.find_operation(incident, wanted, seq)
        elif wanted is None and finding is not None and not map_:
            operation = evidence.reported_operation(incident, finding)
        blamed = frozenset() if finding is None else evidence.blamed_ranks(incident, finding)
        if map_:
            sums = evidence.traffic_map(incident, wanted, operation, blamed)
            drawing = Drawing(partial(text.map_lines, sums), partial(svg.map_svg, sums))
        elif operation is not None:
            sent = evidence.operation_traffic(incident, operation, blamed)
            drawing = Drawing(
                partial(text.curve_lines, sent, resolution_ns=resolution_ns),
                partial(svg.curves_svg, sent, resolution_ns),
            )
        else:
            raise UsageError("no finding about traffic: choose a communicator with --comm")
    show(drawing, output)


def _finding(incident: Incident, job: str | None, comm: int | None) -> Finding | None:
    """The first finding about traffic, on the given communicator if any."""
    from oncall.cli.options import rulebooks_in_force
    from oncall.use_case.diagnose import diagnose
    from oncall.views.traffic.operations import PICTURE

    read = rulebooks_in_force((), True, {})
    rulebooks = [book for book in read.in_force if book.book.draw == PICTURE]
    diagnosis = diagnose(incident, rulebooks, job)
    named = [
        one
        for one in diagnosis.findings
        if comm is None or any(int(b.where.get("comm", "0x0"), 16) == comm for b in one.blame)
    ]
    return next(iter(named), None)


def _resolution_ns(text: str) -> int:
    from oncall.core.units import parse_duration_ns

    duration_ns = parse_duration_ns(text)
    if duration_ns <= 0:
        raise UsageError(f"--resolution {text}: the duration must be positive, such as 32us")
    return duration_ns
