"""Profiles alone: who is slow, and why, where the trace shows it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.sql import found

from oncall.core.diagnosis import Diagnosis
from oncall.evidence.incident import Incident
from oncall.importers.detect import load
from oncall.rules.language.load import load_rulebooks, shipped_folder
from oncall.use_case.diagnose import diagnose

from .profiles import Spent, write_job


def reasons_and_diagnosis(folder: Path) -> tuple[list[tuple[Any, ...]], Diagnosis]:
    with Incident.empty() as incident:
        load([folder], incident)
        diagnosis = diagnose(incident, load_rulebooks([shipped_folder()]))
        return found(incident, "delay_reasons", "rank, kind"), diagnosis


ON_GPUS = [
    (Spent(kernel=11_200), "kernel", "matrix kernels, of the same shapes, take 1.4 times as long"),
    (Spent(loader=36_000), "loader", "waits for its data loader 35.9 % of the time, peers 0 %"),
    (Spent(garbage=36_000), "garbage", "garbage collection takes 35.9 % of its time"),
    (Spent(launch=14_000), "launch", "its host is slow"),
    (Spent(python=36_000), "idle", "no kernel takes longer: its host is late"),
]
ON_CPUS = [
    (Spent(kernel=11_200), "operator", "matrix operators, of the same shapes, take 1.4 times"),
    (Spent(loader=36_000), "loader", "waits for its data loader"),
    (Spent(python=36_000), "python", "outside of PyTorch's operators"),
]


@pytest.mark.parametrize("devices", [True, False])
def test_a_profile_names_the_slow_rank_and_says_why(tmp_path: Path, devices: bool) -> None:
    for spent, kind, says in ON_GPUS if devices else ON_CPUS:
        folder = tmp_path / kind
        folder.mkdir()
        write_job(folder, {2: spent}, devices=devices)
        rows, diagnosis = reasons_and_diagnosis(folder)
        assert rows == [(2, kind)]
        [finding] = [one for one in diagnosis.findings if one.explained_by is None]
        assert (finding.verdict, finding.blame[0].where["rank"]) == ("S1", 2)
        assert any(says in step.say for step in finding.story)


def test_of_a_few_steps_the_likeliest_rank_is_named_first(tmp_path: Path) -> None:
    write_job(tmp_path, {1: Spent(kernel=11_200)}, steps=3)
    _, diagnosis = reasons_and_diagnosis(tmp_path)
    assert diagnosis.result == "inconclusive"
    suspect = diagnosis.suspects[0]
    assert [one.where["rank"] for one in suspect.blame] == [1]
    assert "its GPU is slow" in suspect.why


@pytest.mark.parametrize("devices", [True, False])
def test_nobody_is_accused_of_what_ranks_take_longer_by_turns(
    tmp_path: Path, devices: bool
) -> None:
    write_job(tmp_path, {rank: Spent(jitter=0.6) for rank in range(4)}, devices=devices)
    reasons, diagnosis = reasons_and_diagnosis(tmp_path)
    assert not diagnosis.findings and not reasons


def test_what_differs_in_shape_is_not_compared(tmp_path: Path) -> None:
    """A rank with longer samples has no slow GPU."""
    folder = write_job(tmp_path, {2: Spent(kernel=11_200)})
    trace = json.loads((folder / "rank2.json").read_text())
    for event in trace["traceEvents"]:
        if event["cat"] == "kernel" and "nccl" not in event["name"]:
            event["args"]["grid"][2] = 2
    (folder / "rank2.json").write_text(json.dumps(trace))
    reasons, _ = reasons_and_diagnosis(folder)
    assert not reasons


def test_where_two_ranks_are_late_alike_no_all_clear_is_given(tmp_path: Path) -> None:
    write_job(tmp_path, {1: Spent(kernel=11_200), 2: Spent(kernel=11_200)})
    _, diagnosis = reasons_and_diagnosis(tmp_path)
    assert (diagnosis.result, diagnosis.findings) == ("inconclusive", ())
