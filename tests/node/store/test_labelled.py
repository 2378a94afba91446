"""Tasks of training come from nodes with their digests, though few of their operations do."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oncall.evidence.incident import Incident
from oncall.fleet.ask import ask_fleet
from oncall.fleet.gather import Window
from oncall.fleet.local import LocalTransport, nodes_in
from oncall.node.store import labelled
from oncall.node.store.catalog import sealed_shards
from oncall.node.store.labelled import LabelledTasks
from oncall.node.store.reader import open_shards
from oncall_lab.pipeline.scenario import PipelineScenario
from oncall_lab.pipeline.simulation import simulate_pipeline
from oncall_lab.shards import write_shards

SCENARIO = PipelineScenario(iterations=6, clock_offset_ns=0, clock_error_ns=0)
_KEYS = "rank, iteration, task, stage, chunk, micro_batch"


def recorded_tasks(scenario: PipelineScenario) -> set[Any]:
    incident, _ = simulate_pipeline(replace(scenario, recorder="tasks"))
    with incident:
        return tasks(incident)


def tasks(incident: Incident, table: str = "stage_tasks") -> set[Any]:
    rows = incident.con.execute(
        f"SELECT {_KEYS} FROM {table} WHERE task IN ('forward', 'backward')"
    ).fetchall()
    return set(rows)


def test_a_gather_brings_the_tasks_of_all_nodes(tmp_path: Path) -> None:
    incident, _ = simulate_pipeline(SCENARIO)
    with incident:
        write_shards(incident, tmp_path)
    folders = nodes_in(tmp_path)
    asked = ask_fleet(
        LocalTransport(folders),
        tuple(folders),
        SCENARIO.job,
        Window(),
        lambda _: (),
        patience_s=60,
    )
    with asyncio.run(asked).incident as gathered:
        assert tasks(gathered) == recorded_tasks(SCENARIO)
        gathered.require(["stage_work"])
        assert tasks(gathered, "stage_work") == recorded_tasks(SCENARIO)


def test_they_are_kept_until_another_shard_is_sealed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    incident, _ = simulate_pipeline(SCENARIO)
    with incident:
        write_shards(incident, tmp_path)
    folder = next(iter(nodes_in(tmp_path).values()))
    sealed, kept = sealed_shards(folder), LabelledTasks()
    with open_shards(sealed) as opened:
        first = kept.part(opened.con, sealed, SCENARIO.job, tmp_path)
        assert first is not None
        monkeypatch.setattr(labelled, "_label", lambda *_: pytest.fail("labelled again"))
        assert kept.part(opened.con, sealed, SCENARIO.job, tmp_path) is first


def test_only_the_newest_operations_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    incident, _ = simulate_pipeline(SCENARIO)
    with incident:
        write_shards(incident, tmp_path)
    folder = next(iter(nodes_in(tmp_path).values()))
    sealed = sealed_shards(folder)
    with open_shards(sealed) as opened:
        whole = LabelledTasks().part(opened.con, sealed, SCENARIO.job, tmp_path)
        monkeypatch.setattr(labelled, "OPERATIONS", 2_000)
        part = LabelledTasks().part(opened.con, sealed, SCENARIO.job, tmp_path)
        # What was lent is given back.
        assert opened.con.execute("SELECT count(*) FROM ops").fetchall()
    assert whole is not None
    assert part is not None
    assert 0 < part.rows < whole.rows
