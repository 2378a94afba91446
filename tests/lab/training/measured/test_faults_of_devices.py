"""Every fault of devices and hosts can be asked for, acts, and names its culprit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oncall.core.units import NS_PER_S
from oncall_lab import TrainingFault, TrainingScenario, simulate
from oncall_lab.training.fault import MEASURED_WAYS

SHORT = TrainingScenario(
    tp=4, pp=2, dp=2, gpus_per_node=8, duration_ns=16 * NS_PER_S, dp_bytes=4 * 2**30
)
WAYS = [
    pytest.param(kind, how, marks=[] if how == ways[0] else pytest.mark.slow)
    for kind, ways in MEASURED_WAYS.items()
    for how in ways
]


@pytest.mark.parametrize(("kind", "how"), WAYS)
def test_a_fault_acts_and_names_its_culprit(kind: str, how: str) -> None:
    fault = TrainingFault(kind, (10,), 8 * NS_PER_S, how=how)
    incident, truth = simulate(replace(SHORT, faults=(fault,)))
    with incident:
        (found,) = truth.faults
        assert (found.kind, found.how, found.severity) == (kind, how, 2)
        if kind in ("PATTERN", "SCHEDULING", "SETTINGS"):
            known = {comm for (comm,) in incident.con.execute("SELECT comm FROM comms").fetchall()}
            assert {int(str(place["comm"]), 16) for place in found.blame} <= known
            assert found.blame
        else:
            assert {place["node"] for place in found.blame} >= {"gpu002"}
        assert incident.rows("nics") > 900 and incident.rows("gpus") > 200
