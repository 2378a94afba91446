"""Whatever is wrong with the evidence, there is a diagnosis, and it says so."""

from __future__ import annotations

import pytest

from oncall.core.errors import ExitCode

from .evidence_mutations import Outcome, mutate_and_diagnose

FEW, MANY = 8, 2_000  # each with up to six mutations


@pytest.mark.parametrize("seed", range(FEW))
def test_mutated_evidence_is_diagnosed(seed: int) -> None:
    outcome = mutate_and_diagnose(seed)
    assert outcome.mutations and outcome.exit_code in ExitCode


@pytest.mark.slow
@pytest.mark.timeout(7_200)
def test_much_mutated_evidence_is_diagnosed() -> None:
    outcomes = [mutate_and_diagnose(seed) for seed in range(FEW, FEW + MANY)]
    failed = [one for one in outcomes if one.failed and not _was_broken(one)]
    assert not failed, failed[:5]


def _was_broken(outcome: Outcome) -> bool:
    return any(mutation.startswith("break ") for mutation in outcome.mutations)
