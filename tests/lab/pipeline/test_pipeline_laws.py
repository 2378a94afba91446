"""Laws of simulated pipelines, whatever the scenario."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncall.core.errors import UsageError
from oncall_lab.pipeline import PipelineFault, PipelineScenario, simulate_pipeline
from oncall_lab.pipeline.play import Played, play
from oncall_lab.pipeline.simulation import StageTruth
from oncall_lab.simulation import load

MS = 10**6
# Transfers take no time and nothing varies: what is left is arithmetic.
EXACT: dict[str, Any] = {
    "jitter": 0.0, "latency_ns": 0, "pp_bytes": 0, "tp_bytes": 0, "dp_bytes": 0,
    "optimizer_ns": 0, "warm_up_iterations": 0, "iterations": 2, "gpus_per_node": 4,
}  # fmt: skip


@st.composite
def scenarios(draw: st.DrawFn) -> PipelineScenario:
    schedule = draw(st.sampled_from(["1F1B", "interleaved", "GPipe"]))
    chunks, pp = (2, 4) if schedule == "interleaved" else (1, draw(st.sampled_from([1, 2, 4])))
    return PipelineScenario(
        seed=draw(st.integers(0, 10**6)),
        schedule=schedule,
        chunks=chunks,
        pp=pp,
        tp=draw(st.sampled_from([1, 2])),
        dp=draw(st.sampled_from([2, 4])),
        cp=draw(st.sampled_from([1, 2])),
        ep=draw(st.sampled_from([1, 2])),
        micro_batches=pp * draw(st.integers(1, 2)),
        layers=pp * chunks,
        iterations=2,
        sequence_parallel=draw(st.booleans()),
        distributed_optimizer=draw(st.booleans()),
        overlap_gradients=draw(st.booleans()),
        overlap_p2p=draw(st.booleans()),
        evaluate_every=draw(st.sampled_from([0, 1])),
        checkpoint_every=draw(st.sampled_from([0, 1])),
        garbage_every=draw(st.sampled_from([0, 2])),
    )


def lengths(played: Played) -> Any:
    return np.diff(played.spans, axis=1)[:, 0]


@pytest.mark.parametrize("schedule", ["1F1B", "GPipe"])
@pytest.mark.parametrize(("pp", "micro_batches"), [(2, 4), (4, 8), (4, 2)])
def test_an_iteration_lasts_as_long_as_its_bubbles_say(
    schedule: str, pp: int, micro_batches: int
) -> None:
    """Narayanan et al. 2021, 2.2: pp - 1 micro-batches' time is idle."""
    scenario = PipelineScenario(
        schedule=schedule, pp=pp, layers=pp, micro_batches=micro_batches, overlap_p2p=True, **EXACT
    )
    expected_ns = (micro_batches + pp - 1) * 3 * scenario.forward_ns
    assert lengths(play(scenario))[1] == pytest.approx(expected_ns, rel=0.01)


def test_interleaving_makes_the_bubble_smaller_by_the_number_of_chunks() -> None:
    scenario = PipelineScenario(schedule="interleaved", chunks=2, micro_batches=8, **EXACT)
    expected_ns = (8 + 3 / 2) * 3 * scenario.forward_ns
    assert lengths(play(scenario))[1] == pytest.approx(expected_ns, rel=0.01)


@given(scenarios())
@settings(max_examples=8)
def test_members_of_a_communicator_call_alike_and_leave_after_the_last_has_come(
    scenario: PipelineScenario,
) -> None:
    incident, _ = simulate_pipeline(scenario)
    with incident:
        wrong = incident.con.execute(
            """SELECT comm, seq FROM ops JOIN comms USING (job, comm, rank) WHERE kind = 'coll'
               GROUP BY comm, seq
               HAVING count(*) <> max(size) OR count(DISTINCT (op, bytes)) > 1"""
        ).fetchall()
        assert wrong == []
        gaps = incident.con.execute(
            "SELECT rank FROM ops GROUP BY comm, kind, rank HAVING max(seq) <> count(*)"
        ).fetchall()
        assert gaps == []
        early = incident.con.execute(
            """WITH each AS (SELECT comm, seq, o.started_ns - offset_ns AS began_ns,
                                ended_ns - offset_ns AS over_ns,
                                enqueued_ns <= o.started_ns AS recorded
                            FROM ops o JOIN ranks USING (job, rank) JOIN clocks USING (node)
                            WHERE kind = 'coll')
               SELECT comm, seq FROM each GROUP BY comm, seq
               HAVING min(over_ns) < max(began_ns) - 300_000 OR NOT bool_and(recorded)"""
        ).fetchall()
        assert early == []  # 300 us: twice what a clock's measurement is wrong, and more


@given(scenarios())
@settings(max_examples=8)
def test_every_send_has_its_recv(scenario: PipelineScenario) -> None:
    incident, _ = simulate_pipeline(scenario)
    with incident:
        alone = incident.con.execute(
            """SELECT count(*) FROM (SELECT * FROM ops WHERE op = 'Send') s
               FULL JOIN (SELECT * FROM ops WHERE op = 'Recv') r
               ON s.comm = r.comm AND s.rank = r.peer AND s.peer = r.rank
                  AND s.pair_seq = r.pair_seq
               WHERE s.rank IS NULL OR r.rank IS NULL"""
        ).fetchall()
        assert alone == [(0,)]
        assert (incident.rows("ops") == 0) == (scenario.world_size == 1)


@given(scenarios(), st.data())
@settings(max_examples=8)
def test_a_delay_lengthens_an_iteration_by_no_more_than_itself(
    scenario: PipelineScenario, data: st.DataObject
) -> None:
    fault = PipelineFault(
        "delay",
        rank=data.draw(st.integers(0, scenario.world_size - 1)),
        iteration=data.draw(st.integers(0, 1)),
        task=data.draw(st.sampled_from(["forward", "backward"])),
        micro_batch=data.draw(st.integers(0, scenario.micro_batches - 1)),
        chunk=data.draw(st.integers(0, scenario.chunks - 1)),
        delay_ns=data.draw(st.integers(1, 2000)) * MS,
    )
    _, truth = simulate_pipeline(replace(scenario, faults=(fault,)))
    (reported,) = truth.faults
    assert isinstance(reported, StageTruth)
    assert reported.lengthened_ns is not None
    assert -1 * MS <= reported.lengthened_ns <= fault.delay_ns + 1 * MS


def test_a_delay_where_there_is_slack_costs_nothing_and_on_the_path_all_of_itself() -> None:
    """The first stage waits for its first backward; the last stage's first forward has no slack."""
    common: dict[str, Any] = {"jitter": 0.0, "overlap_p2p": True, "iterations": 6}
    cost = {}
    for rank, micro_batch in ((0, 3), (14, 0)):
        fault = PipelineFault("delay", rank, micro_batch=micro_batch, delay_ns=100 * MS)
        _, truth = simulate_pipeline(PipelineScenario(**common, faults=(fault,)))
        (reported,) = truth.faults
        assert isinstance(reported, StageTruth)
        cost[rank] = reported.lengthened_ns
    assert cost == {0: pytest.approx(0, abs=MS), 14: pytest.approx(100 * MS, abs=MS)}


def test_recorders_that_know_less_say_less() -> None:
    small: dict[str, Any] = {"iterations": 3, "holes": 0.02, "starts_in": 0.4}
    incident, _ = simulate_pipeline(PipelineScenario(recorder="calls", **small))
    with incident:
        assert incident.con.execute("SELECT count(ended_ns), count(bytes) FROM ops").fetchall() == [
            (0, 0)
        ]
        holes = incident.con.execute("SELECT sum(holes) FROM recordings").fetchall()
        assert holes[0][0] > 0
    incident, _ = simulate_pipeline(PipelineScenario(recorder="tasks", iterations=3))
    with incident:
        assert incident.rows("ops") == 0
        found = incident.con.execute(
            """SELECT task, count(*) FROM stage_tasks WHERE micro_batch IS NOT NULL
               GROUP BY task ORDER BY task"""
        ).fetchall()
    # 16 ranks, 3 iterations, 8 micro-batches; one stage in four has nobody to send to.
    assert dict(found) == {
        "forward": 384, "backward": 384, "forward_send": 288, "forward_recv": 288,
        "backward_send": 288, "backward_recv": 288,
    }  # fmt: skip


def test_a_scenario_file_that_names_a_schedule_is_of_a_pipeline(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(
        "schedule: interleaved\nchunks: 2\nforward: 60 ms\n"
        "faults:\n  - {fault: delay, rank: 3, task: backward, delay: 2 s}\n"
    )
    scenario = load(file)
    assert isinstance(scenario, PipelineScenario)
    assert (scenario.forward_ns, scenario.faults[0].delay_ns) == (60 * MS, 2000 * MS)


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"schedule": "interleaved"}, "`chunks` of 2"),
        ({"layers": 6}, "`layers: 6`"),
        ({"recorder": "eyes"}, "`recorder: eyes`"),
        ({"faults": (PipelineFault("hang", rank=99),)}, "the ranks are 0-15"),
        ({"faults": (PipelineFault("hang", task="backward_send"),)}, "at the end"),
    ],
)
def test_what_cannot_be_is_refused_by_name(values: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        PipelineScenario(**values)
