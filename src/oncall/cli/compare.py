"""`oncall compare`: what takes longer in one run than in another."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from oncall.cli.evidence import evidence_of
from oncall.cli.options import FormatOption, JobOption, TextOrJson
from oncall.cli.terminal import Interruptible
from oncall.core.errors import UsageError

_PLACE = "A saved incident, a recording, or a folder of shards"


def compare(
    base: Annotated[Path, typer.Argument(metavar="BASE", help=f"{_PLACE}: the run before.")],
    other: Annotated[Path, typer.Argument(metavar="OTHER", help=f"{_PLACE}: the run since.")],
    job: JobOption = None,
    format: FormatOption = TextOrJson.TEXT,  # noqa: A002
) -> None:
    """Say what takes longer in one run than in another.

    Iterations, the work of ranks, and transfers are compared; what differs is beyond the noise of
    both runs. What the runs were started with is compared as far as it is recorded.
    """
    from oncall.render.text.comparison import to_json, to_text
    from oncall.views.comparison import Run, compared, run_of

    runs: list[Run] = []
    for path in (base, other):
        with evidence_of(path, job) as incident, Interruptible(incident.con):
            incident.disbelieve()
            runs.append(run_of(incident))
            if not runs[-1].measures:
                raise UsageError(f"{path}: shows neither iterations, nor work, nor transfers")
    before, since = runs
    found = compared(before, since)
    names = (str(base), str(other))
    text = to_json(found) if format is TextOrJson.JSON else to_text(found, before, since, names)
    sys.stdout.write(text)
