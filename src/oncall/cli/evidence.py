"""The evidence that a command reads: a saved incident, a recording, or a folder of shards."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from oncall.evidence.incident import Incident

Evidence = Annotated[
    Path,
    typer.Argument(metavar="PATH", help="A saved incident, a recording, or a folder of shards."),
]


def evidence_of(path: Path, job: str | None) -> Incident:
    """The evidence at `path`, of one job. Of shards, what the rulebooks in force would request from
    nodes. Raises UsageError where several jobs left evidence and none is chosen."""
    from oncall.evidence import window
    from oncall.use_case.recordings import read_evidence, shards_in

    shards = shards_in([str(path)])
    if not shards:
        incident = read_evidence([str(path)], job)
    else:
        from oncall.cli.options import rulebooks_in_force
        from oncall.use_case.gathering import Wanted, read_shards

        rulebooks = rulebooks_in_force((), True, {}).in_force
        incident = read_shards(shards, Wanted(job), rulebooks).incident
    with incident.handed_on():
        window.keep_job(incident.con, job)
        return incident
