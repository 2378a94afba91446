"""Jobs with experts: routing is no machine's fault, and who waits for a slow rank no culprit."""

from __future__ import annotations

from typing import Any

from oncall.evidence import Incident
from oncall_lab.pipeline import PipelineFault, PipelineScenario, simulate_pipeline


def experts(**fields: Any) -> Incident:
    scenario = PipelineScenario(
        seed=4, iterations=8, pp=2, tp=2, dp=2, ep=2, micro_batches=4, layers=2, **fields
    )
    incident, _ = simulate_pipeline(scenario)
    incident.require(["expert_ranks", "stage_imbalance"])
    return incident


def test_work_that_changes_with_the_whole_tensor_group_is_routing() -> None:
    with experts(routing=0.3) as incident:
        ranks = incident.con.execute("SELECT rank FROM expert_ranks ORDER BY rank").fetchall()
        assert ranks == [(rank,) for rank in range(8)]
        rows = incident.con.execute(
            "SELECT cost_ns > 0 FROM stage_imbalance WHERE kind = 'experts'"
        )
        assert rows.fetchall() == [(True,)]


def test_even_experts_are_not_reported() -> None:
    with experts() as incident:
        assert incident.con.execute("FROM expert_ranks").fetchall() == []


def test_a_slow_rank_is_none_of_them() -> None:
    fault = PipelineFault(
        kind="delay", rank=5, iteration=5, task="forward", micro_batch=2, delay_ns=2 * 10**9
    )
    with experts(faults=(fault,)) as incident:
        assert incident.con.execute("FROM expert_ranks WHERE rank = 5").fetchall() == []
