"""The options that say whose evidence: a job, and the nodes to query."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oncall.core.errors import UsageError

JobOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="Job to use, if there are several.")
]
InventoryOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="File that lists the nodes to query.")
]
HostsOption = Annotated[
    str | None,
    typer.Option(
        metavar="NODESET",
        help="Nodes to query, such as gpu[001-512] or local:DIR/*, or those of a job: slurm:1234, "
        "srun:1234, kube:pytorchjob/NAME[@NAMESPACE], kube:LABEL=VALUE, ray:ID.",
    ),
]
SlurmJobOption = Annotated[
    str | None,
    typer.Option(
        metavar="ID", help="Query the nodes of this Slurm job; the same as --hosts slurm:ID."
    ),
]


def with_slurm_job(hosts: str | None, slurm_job: str | None) -> str | None:
    """The value of `--hosts`, also where `--slurm-job` names the nodes."""
    if slurm_job is None:
        return hosts
    if hosts is not None:
        raise UsageError("give either --hosts or --slurm-job, not both")
    return f"slurm:{slurm_job}"
