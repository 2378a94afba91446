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

    Writes the evidence to diagnose and the truth to compare with. The same scenario and seed give
    the same evidence. See docs/guide/simulate.md for an example.
    """
    from dataclasses import replace

    from oncall.core.errors import UsageError
    from oncall.core.units import format_number
    from oncall.simulate import write
    from oncall.simulate.load import load, run
    from oncall.simulate.network import NetworkScenario

    wanted = load(scenario)
    if seed is not None:
        wanted = replace(wanted, seed=seed)
    if shards and isinstance(wanted, NetworkScenario):
        raise UsageError("--shards: a network scenario has no nodes' evidence; omit --shards")
    incident, truth = run(wanted)
    with incident:
        write(incident, truth, output, shards=shards)
        rows = {table: incident.rows(table) for table in ("ops", "flow_steps")}
    recorded = f"{format_number(rows['ops'])} operations"
    if rows["flow_steps"]:
        recorded = f"{format_number(rows['flow_steps'])} flow steps"
    faults = ", ".join(fault.kind for fault in truth.faults) or "healthy"
    typer.echo(
        f"{output}: {format_number(wanted.world_size)} ranks, {recorded}, "
        f"{faults}; wrote {'a folder per node' if shards else 'evidence.oncall'} and truth.json"
    )
