"""Processes that are not recorded leave notes; collector, `hooks show` and `doctor` read them."""

from __future__ import annotations

import os
import resource
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oncall.cli.hooks import show
from oncall.core.units import NS_PER_S
from oncall.fleet.endpoint.hello import ring_states
from oncall.node.common.source import Instant
from oncall.node.rings.rings import RingSource
from oncall.node.rings.unrecorded import in_words, remove_outdated, unrecorded

Recording = Callable[..., Any]  # tests/conftest.py: starts a process that records


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rings = tmp_path / "run" / "rings"
    rings.mkdir(parents=True)
    return rings


def _note(folder: Path, pid: int, reason: str, *, age_s: int = 0, kind: str = "ring") -> Path:
    now_ns = time.time_ns() - age_s * NS_PER_S
    path = folder / f"{pid}-{now_ns}.{kind}.unrecorded"
    path.symlink_to(reason)
    os.utime(path, ns=(now_ns, now_ns), follow_symlinks=False)
    return path


@pytest.fixture
def limited(ring_writer: Path, folder: Path) -> Any:
    """A living process that a limit keeps from recording."""
    with subprocess.Popen(
        [ring_writer],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "ONCALL_RUN_DIR": str(folder.parent)},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)),
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "silent\n"
        yield process
        process.kill()


def test_everybody_who_looks_learns_of_it(
    limited: subprocess.Popen[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = RingSource(folder, "node", 0, {})
    [problem] = source.collect(Instant(time.time_ns(), time.monotonic_ns())).problems
    assert problem.startswith(f"process {limited.pid} is not recorded: the limit on file sizes")
    assert ring_states(folder.parent)["unrecorded"] == [problem]
    show(folder.parent)
    assert problem in capsys.readouterr().err


def test_one_line_a_reason(folder: Path) -> None:
    for pid in (2_000_000_001, 2_000_000_002, 2_000_000_003, 2_000_000_004, 2_000_000_005):
        _note(folder, pid, "no room")
    _note(folder, 2_000_000_006, "no room", kind="verbs")
    assert list(in_words(unrecorded(folder))) == [
        "processes 2000000001, 2000000002, 2000000003, 2000000004 and 1 more are not recorded: "
        "no room",
        "process 2000000006 is not recorded at its RDMA NICs: no room",
    ]


def test_a_note_lasts_as_long_as_its_process(limited: subprocess.Popen[str], folder: Path) -> None:
    _note(folder, limited.pid, "of a process that had the number before", age_s=7200)
    _note(folder, 2_000_000_001, "of a process long gone", age_s=7200)
    _note(folder, 2_000_000_002, "of one in a container")
    notes = unrecorded(folder)
    remove_outdated(notes)
    left = unrecorded(folder)
    assert len(notes) == 4
    assert sorted(note.pid for note in left) == sorted([limited.pid, 2_000_000_002])
    assert all(note.is_current for note in left)


def test_what_is_no_note_is_passed_over(folder: Path) -> None:
    (folder / "1-2.ring.unrecorded").write_text("a file")
    (folder / "x.unrecorded").symlink_to("no number")
    (folder / "1-2.fifo.unrecorded").symlink_to("no kind of ours")
    assert unrecorded(folder) == []
    assert unrecorded(folder / "nowhere") == []


def test_a_process_that_records_leaves_none(recording: Recording, folder: Path) -> None:
    assert recording().recording
    assert unrecorded(folder) == []
