"""The same evidence in another order of its rows gives the same relations and the same findings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from oncall.evidence import Incident
from oncall.evidence.registry import all_relations
from oncall.evidence.schema import TABLES
from oncall.rules.language.load import load_rulebooks, shipped_folder
from oncall.rules.language.rulebook import Rulebook
from oncall.use_case.diagnose import diagnose
from oncall_lab import simulate
from oncall_lab.drawn.pipeline import experiment
from oncall_lab.drawn.training import random_scenario
from oncall_lab.pipeline import simulate_pipeline
from oncall_lab.pipeline.fault import PipelineFault
from oncall_lab.pipeline.scenario import PipelineScenario

HANG = PipelineScenario(
    seed=7,
    recorder="calls",
    iterations=8,
    tp=2,
    pp=2,
    dp=2,
    layers=4,
    micro_batches=4,
    faults=(PipelineFault("hang", rank=2, iteration=6, task="backward", micro_batch=1),),
)


@cache
def rulebooks() -> tuple[Rulebook, ...]:
    return tuple(load_rulebooks([shipped_folder()]))


def shuffled(path: Path, seed: float) -> Incident:
    """A saved incident with the rows of each table in an order drawn by `seed`, within -1..1."""
    incident = Incident.open(path)
    incident.con.execute("SELECT setseed(?)", [seed])
    for table in TABLES:
        incident.con.execute(
            f"CREATE TEMP TABLE mixed AS FROM {table.name} ORDER BY random();"
            f"DELETE FROM {table.name}; INSERT INTO {table.name} FROM mixed; DROP TABLE mixed"
        )
    return incident


def relations(incident: Incident) -> Iterator[tuple[str, list[str]]]:
    """Every relation's rows as text, sorted; row numbers left out, fractions to seven digits."""
    incident.provide(all_relations())
    for name, entry in all_relations().items():
        columns = ", ".join(f'"{c.name}"' for c in entry.columns if c.name != "ops_row")
        rows = incident.con.execute(f"SELECT {columns} FROM {name}").fetchall()
        yield name, sorted(map(rounded, rows))


def findings(incident: Incident) -> list[str]:
    return [rounded(finding) for finding in diagnose(incident, rulebooks()).findings]


def rounded(reported: Any) -> str:
    # Sums of fractions depend on the order they are taken in, in their last digits.
    return re.sub(r"\d+\.\d+(e-?\d+)?", lambda number: f"{float(number[0]):.7g}", repr(reported))


def saved(incident: Incident, folder: Path) -> Path:
    path = folder / "incident.oncall"
    with incident:
        incident.save(path)
    return path


def expect_alike(path: Path) -> None:
    with shuffled(path, 0.1) as first, shuffled(path, 0.7) as second:
        columns = dict(relations(first))
        for name, rows in relations(second):
            assert rows == columns[name], name
        assert findings(first) == findings(second)


def test_findings_of_a_hang_do_not_depend_on_the_order_of_rows(tmp_path: Path) -> None:
    path = saved(simulate_pipeline(HANG)[0], tmp_path)
    with shuffled(path, 0.1) as first, shuffled(path, 0.7) as second:
        said = findings(first)
        assert said
        assert findings(second) == said


@pytest.mark.slow
@pytest.mark.parametrize("seed", [33004, 33014])
@pytest.mark.parametrize("kind", ["hang", "slow"])
@pytest.mark.parametrize("recorder", ["hooks", "calls", "tasks"])
def test_no_relation_of_a_pipeline_depends_on_the_order_of_rows(
    kind: str, seed: int, recorder: str, tmp_path: Path
) -> None:
    scenario = replace(experiment(kind, seed), recorder=recorder)
    expect_alike(saved(simulate_pipeline(scenario)[0], tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["H1", "H2", "H3", "S1", "S2"])
def test_no_relation_of_a_job_depends_on_the_order_of_rows(kind: str, tmp_path: Path) -> None:
    expect_alike(saved(simulate(random_scenario(91000, (kind,)))[0], tmp_path))
