"""`oncall simulate SCENARIO -o DIR`: evidence of a simulated cluster, with its ground truth."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def simulate(
    scenario: Annotated[Path, typer.Argument(help="The scenario, a YAML file.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for the evidence and truth.json.")
    ],
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="Instead of the scenario's own seed.")
    ] = None,
    shards: Annotated[
        bool, typer.Option("--shards", help="A data folder a node, as collectors write them.")
    ] = False,
) -> None:
    """Simulate a training cluster with faults: evidence to diagnose, and the truth beside it.

    The same scenario and seed give the same evidence. docs/guide/simulate.md has an example.
    Needs the lab: pip install 'oncall[lab]'.
    """
    from oncall.lab import simulate_file

    typer.echo(simulate_file(scenario, output, seed=seed, shards=shards))
