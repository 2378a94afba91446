# ruff: noqa: E501 - lines of logs as programs print them
"""Step lines of training frameworks, and how much a step is."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.importers.logs.single_lines import found_in, only


@pytest.mark.parametrize(
    ("text", "iteration", "duration_s"),
    [
        (
            " [2025-04-22 09:31:00] iteration      480/     500 | consumed samples: 7680 | elapsed time per iteration (ms): 2210.4 | throughput per GPU (TFLOP/s/GPU): 168.2 |",
            480,
            2.2104,
        ),
        ("Epoch 0:   6%|██ | 32040/500150 [6:28:43<94:39:17,  1.25it/s, loss=2.6]", 32040, 0.8),
        ("100%|███| 50/100 [02:10<02:10,  2.50s/it]", 50, 2.5),
        (
            "[rank0]:[titan] 2026-05-20 10:07:39,051 - root - INFO - step: 22  loss:  2.91  grad_norm: 1.0 memory: 9.46GiB(64.99%)  tps: 7,094  tflops: 1.0  mfu: 0.16%",
            22,
            None,
        ),
        (
            "[2021-08-08 01:00:44,221] [INFO] [logging.py:68:log_dist] [Rank 0] step=10, skipped=0, lr=[0.1], mom=[0.9]",
            10,
            None,
        ),
        ("iter 61204: loss 1.6120, time: 4388.10ms, speed: - toks/s/device", 61204, 4.3881),
        ("Epoch: [3][700/5005]\tTime  0.410 ( 0.417)\tData  0.001", 700, 0.41),
    ],
)
def test_steps(text: str, iteration: int, duration_s: float | None, tmp_path: Path) -> None:
    ((_, found),) = found_in(text, tmp_path)
    assert found.table == "logged_steps"
    assert found.columns["iteration"] == iteration
    expected = pytest.approx(duration_s * 1e9) if duration_s else None
    assert found.columns["duration_ns"] == expected


def test_a_bar_that_is_no_training_is_no_step(tmp_path: Path) -> None:
    bar = "{}:  85%|####  | 4250/5000 [26:55<04:45,  2.63it/s]\n"
    assert [one.table for _, one in found_in(bar.format("Epoch 0"), tmp_path)] == ["logged_steps"]
    assert found_in(bar.format("Map"), tmp_path) == []
    ((_, phase),) = found_in(bar.format("generate"), tmp_path)
    assert phase.columns["code"] == "evaluation"


@pytest.mark.parametrize(
    ("text", "of"),
    [
        ("100%|███| 100/100 [02:10<00:00,  2.50s/it]", 100),
        ("Epoch 0: 100%|███| 100/100 [02:10<00:00,  2.50s/it, loss=2.6]", None),
        ("Epoch: [3][700/700]\tTime  0.410 ( 0.417)\tData  0.001", None),
    ],
)
def test_the_steps_of_an_epoch_are_not_those_of_the_job(
    text: str, of: int | None, tmp_path: Path
) -> None:
    assert only(text, tmp_path)[1].get("of_iterations") == of


@pytest.mark.parametrize(
    ("said", "work", "flops"),
    [
        ("step_time: 1.0s batch_size: 16 seq_len: 4096", 16 * 4096, None),
        ("step_time: 1.0s batch_size: 4 gradient_accumulation_steps: 8", 32, None),
        ("step_time: 1.0s global_batch_size: 256 gradient_accumulation_steps: 8", 256, None),
        ("step_time: 1.0s consumed_samples: 4096", None, None),
        ("step_time: 1.0s tokens_per_step: 131072 batch_size: 3", 131072, None),
        ("tps: 7,500  tflops: 430.12  mfu: 43.50%", None, 430.12),
        ("step_time: 1.0s | throughput per GPU (TFLOP/s/GPU): 401.2 |", None, 401.2),
        ("step_time: 1.0s mfu: 0.41", None, 0.41),
        ("step_time: 1.0s", None, None),
    ],
)
def test_how_much_an_iteration_is(
    said: str, work: float | None, flops: float | None, tmp_path: Path
) -> None:
    [(_, found)] = found_in(f"step:  5  loss:  8.0  {said}\n", tmp_path)
    assert (found.columns["work"], found.columns["flops"]) == (work, flops)


def test_a_line_that_says_that_the_batch_changes(tmp_path: Path) -> None:
    [(_, found)] = found_in("setting gradient_accumulation_steps = 16 (was 8)\n", tmp_path)
    assert found.columns["kind"] == "work"
