"""Jobs looked at while they run: what is in flight then is ordinary, and a hang may be young."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from oncall.core.diagnosis import Diagnosis
from oncall.core.errors import ExitCode
from oncall.core.units import NS_PER_S
from oncall.rules.language.load import load_rulebooks, shipped_folder
from oncall.use_case.diagnose import diagnose, exit_code
from oncall_lab import TrainingFault, TrainingScenario, simulate
from oncall_lab.drawn.training import random_scenario

BOOKS = load_rulebooks([shipped_folder()])


def diagnosed(scenario: TrainingScenario, **overrides: str) -> Diagnosis:
    incident, _ = simulate(replace(scenario, recorder="hooks"))
    with incident:
        return diagnose(incident, BOOKS, overrides=overrides)


@pytest.mark.parametrize("seed", range(10))
def test_a_running_job_gives_no_finding_at_any_instant(seed: int) -> None:
    """The nodes are asked within a blink, or so far apart that each shows another moment."""
    rng = np.random.default_rng(seed)
    drawn = random_scenario(seed, ())
    scenario = replace(
        drawn,
        duration_ns=round(rng.uniform(1, 60) * NS_PER_S),
        gpus_per_node=int(rng.choice((drawn.tp, 8))),
        missing_nodes=(),
        answers_within_ns=int(rng.choice((0, 200 * 10**6, 30 * NS_PER_S))),
    )
    diagnosis = diagnosed(scenario)
    assert diagnosis.findings == ()
    assert not any(
        rule.rule.startswith(("hang", "slow")) for rule in diagnosis.coverage.skipped_rules
    )


YOUNG = TrainingScenario(
    duration_ns=60 * NS_PER_S,
    observe_after_ns=120 * NS_PER_S,
    faults=(TrainingFault("H1", (5,), at_ns=20 * NS_PER_S, role="dp"),),
)


def test_a_hang_of_two_minutes_is_a_standstill_and_not_yet_called_a_hang() -> None:
    diagnosis = diagnosed(YOUNG)
    assert exit_code(diagnosis) is ExitCode.FINDING
    assert [(f.verdict, [b.where["rank"] for b in f.blame]) for f in diagnosis.findings] == [
        ("STANDSTILL", [5])
    ]


def test_who_does_not_want_to_wait_has_it_judged_at_once() -> None:
    diagnosis = diagnosed(YOUNG, **{"hang.hang_after": "20 s"})
    roots = [f for f in diagnosis.findings if f.explained_by is None]
    assert [(f.verdict, [b.where["rank"] for b in f.blame]) for f in roots] == [("H1", [5])]


def test_what_hang_cannot_tell_apart_the_transfers_name() -> None:
    """All members entered and none left; stock NCCL counts no steps inside a host."""
    fault = TrainingFault("H3", (5,), at_ns=20 * NS_PER_S, role="dp", how="gpu")
    diagnosis = diagnosed(
        replace(YOUNG, gpus_per_node=2, observe_after_ns=600 * NS_PER_S, faults=(fault,))
    )
    roots = [f for f in diagnosis.findings if f.explained_by is None]
    assert [(f.rulebook, f.verdict, [b.where["rank"] for b in f.blame]) for f in roots] == [
        ("waits", "W1", [5])
    ]
    assert [(f.rulebook, f.verdict, f.explained_by) for f in diagnosis.findings[1:]] == [
        ("hang", "H3", "F1")
    ]
