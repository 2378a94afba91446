"""--training: stated settings override the recording; wrong ones are reported, not guessed."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncall.cli.options import read_training
from oncall.core.errors import BadInput, UsageError
from oncall.evidence.incident import Incident
from oncall.evidence.job_configuration import apply_training


def reported_columns(text: str) -> dict[str, object]:
    training = read_training(text)
    assert training is not None
    with Incident.empty() as incident:
        incident.append("ranks", {"job": "j", "rank": [0, 15]})
        apply_training(incident, training)
        names = ["world_size", "tp", "pp", "dp", "micro_batches", "origin"]
        row = incident.con.execute(f"SELECT {', '.join(names)} FROM jobs").fetchall()
    (values,) = row
    return dict(zip(names, values, strict=True))


def test_settings_and_what_follows_from_the_ranks() -> None:
    assert reported_columns("tp=2,pp=4,micro_batches=8") == {
        "world_size": 16,
        "tp": 2,
        "pp": 4,
        "dp": 2,
        "micro_batches": 8,
        "origin": "command line",
    }


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("job.yaml", "tp: 2\npp: 4\nmicro_batches: 8\n"),
        ("meta.yaml", "tp_size: 2\npp_size: 4\nmicro_batches: 8\nrun_id: 0\n"),
        (
            "train.sh",
            "#!/bin/sh\ntorchrun train.py --tensor-model-parallel-size 2 "
            "--pipeline-model-parallel-size 4 \\\n --global-batch-size 16 --micro-batch-size 1\n",
        ),
    ],
)
def test_files_of_every_form(tmp_path: Path, name: str, content: str) -> None:
    path = tmp_path / name
    path.write_text(content)
    reported = reported_columns(str(path))
    assert (reported["tp"], reported["pp"], reported["dp"], reported["micro_batches"]) == (
        2,
        4,
        2,
        8,
    )
    assert reported["origin"] == name


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("tensor_parallel: 2\n", "unknown setting `tensor_parallel`"),
        ("hello world\n", "no configuration found"),
        ("- tp\n", "no configuration found"),
    ],
)
def test_a_file_that_tells_nothing_is_bad_input(tmp_path: Path, content: str, problem: str) -> None:
    path = tmp_path / "x"
    path.write_text(content)
    with pytest.raises(BadInput, match=problem):
        read_training(str(path))


@pytest.mark.parametrize("text", ["nowhere.yaml", "tp=x", "--fast"])
def test_what_is_neither_settings_nor_a_file_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="--training"):
        read_training(text)
