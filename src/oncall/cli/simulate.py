"""`oncall simulate SCENARIO -o DIR`: evidence of a simulated cluster and its ground truth."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def simulate(
    scenario: Annotated[Path, typer.Argument(help="Scenario, a YAML file.")],
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="DIR", help="Folder for the evidence and truth.json."
        ),
    ],
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="Override the seed of the scenario.")
    ] = None,
    shards: Annotated[
        bool, typer.Option("--shards", help="Write a data folder per node, as collectors do.")
    ] = False,
) -> None:
    """Simulate a training cluster with faults.

    The same scenario and seed give the same evidence. docs/guide/simulate.md has an example.
    Needs the lab: pip install ./lab in a checkout.
    """
    from oncall.lab import simulate_file

    typer.echo(simulate_file(scenario, output, seed=seed, shards=shards))
