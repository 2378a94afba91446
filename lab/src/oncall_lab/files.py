"""Simulated incidents as files: the evidence, and the truth beside it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from oncall.core.errors import UsageError
from oncall.core.units import format_number
from oncall.evidence.incident import Incident
from oncall_lab.jobs import JobScenario
from oncall_lab.jobs.simulation import write_job
from oncall_lab.network import NetworkScenario
from oncall_lab.shards import write_shards
from oncall_lab.simulation import load, simulate
from oncall_lab.truth import Truth


def simulate_file(path: Path, folder: Path, *, seed: int | None, shards: bool) -> str:
    """Simulate the scenario in a file into `folder`; returns a line that says what is there.

    `seed` replaces the scenario's own. Raises BadInput or UsageError naming what is wrong.
    """
    scenario = load(path)
    if seed is not None:
        scenario = replace(scenario, seed=seed)
    if shards and isinstance(scenario, NetworkScenario):
        raise UsageError("--shards: a network scenario has no nodes' evidence; omit --shards")
    if isinstance(scenario, JobScenario):
        return _dump_job(scenario, folder, shards=shards)
    incident, truth = simulate(scenario)
    with incident:
        write(incident, truth, folder, shards=shards)
        operations, steps = incident.rows("ops"), incident.rows("flow_steps")
    rows = (
        f"{format_number(steps)} steps of flows"
        if steps
        else (f"{format_number(operations)} operations")
    )
    faults = ", ".join(fault.kind for fault in truth.faults) or "healthy"
    return (
        f"{folder}: {format_number(scenario.world_size)} ranks, {rows}, "
        f"{faults}; {'a folder a node' if shards else 'evidence.oncall'} and truth.json"
    )


def _dump_job(scenario: JobScenario, folder: Path, *, shards: bool) -> str:
    """A job as its Flight Recorder dumps."""
    if shards:
        raise UsageError("--shards: a job is written as Flight Recorder dumps; omit --shards")
    truth = write_job(scenario, folder)
    entries = format_number(truth["entries"])
    faults = ", ".join(fault.kind for fault in scenario.faults) or "healthy"
    return (
        f"{folder}: {format_number(scenario.world_size)} ranks, {entries} calls, {faults}; "
        "dumps in fr, and truth.json"
    )


def write(incident: Incident, truth: Truth, folder: Path, *, shards: bool = False) -> None:
    """`evidence.oncall`, or a data folder a node, and beside it `truth.json`.

    Raises UsageError if it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if shards:
            write_shards(incident, folder)
        else:
            incident.save(folder / "evidence.oncall")
        text = json.dumps(truth.to_json(), indent=2) + "\n"
        (folder / "truth.json").write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write to {folder}: {error}") from error
