"""Flight Recorder dumps on request, of processes that listen at their pipes as PyTorch's do."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncall.node.processes.recorder_pipe import ask_for_dumps
from oncall.node.processes.training_processes import TrainingProcess, one_process

# What ProcessGroupNCCL's monitor does: makes the pipe anew, reads it once a second, dumps.
LISTENS = """
import contextlib, os, sys, time
prefix, rank = os.environ["TORCH_NCCL_DEBUG_INFO_PIPE_FILE"], os.environ["RANK"]
path = prefix + rank + ".pipe"
os.mkfifo(path)
pipe = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
print("listens", flush=True)
while True:
    asked = b""
    with contextlib.suppress(BlockingIOError):  # somebody has opened it and not yet written
        asked = os.read(pipe, 64)
    if asked:
        with open(os.environ["TORCH_FR_DUMP_TEMP_FILE"] + rank, "w") as dump:
            dump.write("dumped")
    time.sleep(0.05)
"""


@pytest.fixture
def process(tmp_path: Path) -> Iterator[TrainingProcess]:
    environment = os.environ | {
        "RANK": "3",
        "ONCALL_JOB": "llama",
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{tmp_path}/pipe_rank_",
        "TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/fr_trace_rank_",
    }
    command = (sys.executable, "-c", LISTENS)
    child = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None and child.stdout.readline()
        found = one_process(child.pid)
        assert found is not None
        yield TrainingProcess(child.pid, "llama", 3, found.settings)
    finally:
        child.kill()
        child.communicate()


def test_a_process_that_listens_dumps(process: TrainingProcess, tmp_path: Path) -> None:
    (asked,) = ask_for_dumps([process])
    assert (asked.rank, asked.files, asked.problem) == (3, f"{tmp_path}/fr_trace_rank_", "")
    dump = tmp_path / "fr_trace_rank_3"
    deadline = time.monotonic() + 10
    while not (dump.exists() and dump.read_text()) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert dump.read_text() == "dumped"


def test_what_is_not_a_pipe_of_the_process_is_left_alone(
    process: TrainingProcess, tmp_path: Path
) -> None:
    pipe = tmp_path / "pipe_rank_3.pipe"
    pipe.unlink()
    pipe.write_text("a file")
    assert "not its own" in ask_for_dumps([process])[0].problem
    assert pipe.read_text() == "a file"
    pipe.unlink()
    pipe.symlink_to("/etc/hostname")
    assert "its pipe: " in ask_for_dumps([process])[0].problem
    pipe.unlink()
    os.mkfifo(pipe)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    # Nobody reads it: returns at once all the same.
    assert "nobody reads" in ask_for_dumps([process])[0].problem


def test_processes_without_a_pipe_say_why() -> None:
    unset = TrainingProcess(os.getpid(), "llama", 0, {})
    hidden = TrainingProcess(os.getpid(), "llama", 1, None)
    first, second = ask_for_dumps([unset, hidden])
    assert "is not set" in first.problem and "may not be read" in second.problem
