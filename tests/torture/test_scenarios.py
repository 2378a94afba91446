"""Each scenario once, with a small budget: `make torture` runs them at length."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.torture import REPOSITORY
from tests.torture.__main__ import SCENARIOS, Budget
from tests.torture.outcome import Skipped


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", [name for name in SCENARIOS if name != "job-limits"])
def test_scenario(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    whole_machine: None,  # noqa: ARG001
) -> None:
    monkeypatch.syspath_prepend(REPOSITORY)  # what is started anew finds its module by its name
    budget = Budget(kills=12, workers=1, seed=1, until=time.monotonic() + 600)
    try:
        outcome = SCENARIOS[name](tmp_path, budget)
    except Skipped as why:
        pytest.skip(str(why))
    assert outcome.kept, outcome
