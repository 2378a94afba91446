"""Simulate a job: its dumps and its truth, as files or as an incident."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from oncall.core.errors import UsageError
from oncall.evidence.incident import Incident
from oncall.importers import flight_recorder
from oncall_lab.jobs.play import Played, play
from oncall_lab.jobs.recorder import write_dumps
from oncall_lab.jobs.scenario import JobScenario
from oncall_lab.jobs.truth import truth_for_judges, truth_of_job
from oncall_lab.truth import Truth

DUMPS = "fr"  # the folder beside truth.json


def played_job(scenario: JobScenario) -> Played:
    """The job, played. Raises UsageError if a hang asked for did not come to act."""
    played = play(scenario)
    if played.strike is None and any(fault.hangs for fault in scenario.faults):
        raise UsageError("scenario: no fault came to act; does its rank make such a call?")
    return played


def write_job(
    scenario: JobScenario, folder: Path, *, flavour: str = "", impact: float | None = None,
    played: Played | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Write the dumps and truth.json of a job into `folder`; returns the truth.

    Raises UsageError if it cannot be written, or a hang did not come to act.
    """
    done = played or played_job(scenario)
    truth = truth_for_judges(scenario, done, flavour or scenario.program, impact)
    try:
        truth["entries"] = write_dumps(scenario, done, folder / DUMPS)
        text = json.dumps(truth, indent=1) + "\n"
        (folder / "truth.json").write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write to {folder}: {error}") from error
    return truth


def simulate_job(scenario: JobScenario) -> tuple[Incident, Truth]:
    """The dumps of a job, imported, and the truth; equal scenarios give equal evidence.

    Raises UsageError if a hang asked for did not come to act.
    """
    played = played_job(scenario)
    with tempfile.TemporaryDirectory() as folder:
        write_dumps(scenario, played, Path(folder))
        incident = Incident.empty()
        flight_recorder.read(sorted(Path(folder).iterdir()), incident, scenario.job)
    return incident, truth_of_job(scenario, played)
