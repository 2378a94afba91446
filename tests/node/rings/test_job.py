"""What a node's collector knows of a job's configuration: from the launcher, or the arguments."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from oncall.node.rings.job import arguments_of, job_row
from oncall.node.store.batch import Batch

MEGATRON = ("python", "pretrain_gpt.py", "--tensor-model-parallel-size", "2")
MEGATRON += ("--pipeline-model-parallel-size", "4", "--micro-batch-size", "1")
MEGATRON += ("--global-batch-size", "16", "--use-distributed-optimizer", "--secret", "hunter2")


def row(batch: Batch) -> dict[str, object]:
    table = batch.table
    assert table == "jobs"
    return {name: value for name, value in batch.columns.items() if value is not None}


def test_the_arguments_of_a_process_that_lives_are_read(tmp_path: Path) -> None:
    program = "import sys; print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", program, "--context-parallel-size", "2"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as process:
        assert process.stdout is not None
        process.stdout.readline()  # it has begun
        assert arguments_of(process.pid)[-2:] == ("--context-parallel-size", "2")
        process.communicate(b"")
    assert arguments_of(process.pid, tmp_path) == ()


def test_what_the_launcher_reported_goes_first() -> None:
    reported = row(job_row("j", 16, "tp=4 dp=1", "own", MEGATRON))
    assert (reported["tp"], reported["pp"], reported["dp"]) == (4, 4, 1)
    assert (reported["framework"], reported["origin"]) == ("own", "launcher")
