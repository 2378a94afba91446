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
        raise UsageError("--shards: what switches report lies on no node; leave it out")
    incident, truth = run(wanted)
    with incident:
        write(incident, truth, output, shards=shards)
        rows = {table: incident.rows(table) for table in ("ops", "flow_steps")}
    told = f"{format_number(rows['ops'])} operations"
    if rows["flow_steps"]:
        told = f"{format_number(rows['flow_steps'])} steps of flows"
    faults = ", ".join(fault.kind for fault in truth.faults) or "healthy"
    typer.echo(
        f"{output}: {format_number(wanted.world_size)} ranks, {told}, "
        f"{faults}; {'a folder a node' if shards else 'evidence.oncall'} and truth.json"
    )
