"""The door to the lab: what simulates jobs whose faults are known, and is installed apart.

Nothing else here imports it, and nothing that diagnoses needs it (docs/decisions/016-the-lab.md).
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from oncall.core.errors import UsageError
from oncall.evidence.incident import Incident


def simulated_evidence(scenario: Mapping[str, Any]) -> Incident:
    """The evidence of a scenario given as the mapping of its YAML.

    Raises UsageError if the lab is not installed, or naming the key that is wrong.
    """
    _need_lab()
    from oncall_lab.simulation import scenario_of, simulate

    incident, _ = simulate(scenario_of(scenario))
    return incident


def simulate_file(path: Path, folder: Path, *, seed: int | None, shards: bool) -> str:
    """Simulate the scenario in a file into `folder`, with `seed` instead of its own if given;
    `shards`: a data folder a node. Returns a line that says what is there.

    Raises UsageError if the lab is not installed; BadInput or UsageError for what is wrong.
    """
    _need_lab()
    from oncall_lab import files

    return files.simulate_file(path, folder, seed=seed, shards=shards)


def _need_lab() -> None:
    if importlib.util.find_spec("oncall_lab") is None:
        raise UsageError(
            "simulating needs the lab, which is not installed: pip install ./lab in a checkout"
        )
