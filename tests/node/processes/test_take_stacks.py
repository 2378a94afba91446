"""Stacks by py-spy, and what is said where it cannot take them."""

from __future__ import annotations

import json
import os
import stat
import time
from pathlib import Path

import pytest

from oncall.node.processes import take_stacks
from oncall.node.processes.training_processes import TrainingProcess

ME = TrainingProcess(os.getpid(), "llama", 3)
FRAMES = [{"name": "f", "short_filename": "train.py", "line": 3}]
THREAD = {"pid": ME.pid, "thread_id": 1, "thread_name": "MainThread", "os_thread_id": 1}
STACK = json.dumps([THREAD | {"active": False, "owns_gil": False, "frames": FRAMES}])


def stand_in(folder: Path, script: str) -> Path:
    path = folder / "py-spy"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def look(
    monkeypatch: pytest.MonkeyPatch, program: Path | None, looks: int = 1
) -> list[take_stacks.Look]:
    monkeypatch.setattr(take_stacks, "find_py_spy", lambda: program)
    monkeypatch.setattr(take_stacks, "LOOK_EVERY_S", 0.0)
    return list(take_stacks.take_stacks([ME], "gpu1", native=True, looks=looks))


def test_without_native_frames_where_these_fail(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = f"case \"$*\" in *--native*) echo 'no unwinder' >&2; exit 1;; esac; echo '{STACK}'"
    (found,) = look(monkeypatch, stand_in(tmp_path, script))
    assert found.stacks is not None
    assert found.problem == "no native frames (py-spy: no unwinder)"


def test_permission_denied_says_what_helps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = "echo 'Error: Permission Denied: try sudo' >&2; exit 1"
    (found,) = look(monkeypatch, stand_in(tmp_path, script))
    assert found.problem is not None
    assert found.problem.startswith("py-spy may not trace processes of ")


def test_without_py_spy_the_kernel_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = look(monkeypatch, None)
    assert found.problem == take_stacks.NOT_FOUND


def test_the_kernels_stack(tmp_path: Path) -> None:
    folder = tmp_path / "7"
    folder.mkdir()
    (folder / "stat").write_text("7 (python) D 1")
    (folder / "stack").write_text(
        "[<0>] nfs_wait_bit_killable+0x20/0x90\n[<0>] vfs_read+0x9/0x10\n"
    )
    thread = take_stacks.kernel_stack(7, tmp_path)
    assert thread is not None
    assert (thread.state, thread.frames) == (
        "D",
        ("nfs_wait_bit_killable at kernel", "vfs_read at kernel"),
    )


def test_a_process_that_py_spy_is_slow_for_is_not_stopped_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(take_stacks, "_TIMEOUT_S", 0.3)
    calls = tmp_path / "calls"
    found = look(monkeypatch, stand_in(tmp_path, f"echo $* >> {calls}; exec sleep 20"), looks=2)
    assert [one.problem for one in found] == ["py-spy took more than 0.3 s; try --no-native"] * 2
    assert len(calls.read_text().splitlines()) == 1


def test_the_bound_of_all_looks_holds_within_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(take_stacks, "_ALL_S", 0.5)
    began_s = time.monotonic()
    look(monkeypatch, stand_in(tmp_path, "exec sleep 20"), looks=2)
    assert time.monotonic() - began_s < 4


def test_a_process_in_state_d_is_not_stopped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(take_stacks, "has_uninterruptible_thread", lambda _pid: True)
    script = f"case \"$*\" in *--nonblocking*) echo '{STACK}';; *) exec sleep 20;; esac"
    (found,) = look(monkeypatch, stand_in(tmp_path, script))
    assert found.stacks is not None
    assert found.problem == "no native frames (a thread of it is in state D)"


def test_threads_in_state_d(tmp_path: Path) -> None:
    for thread, state in ((7, "S"), (8, "D")):
        folder = tmp_path / "7" / "task" / str(thread)
        folder.mkdir(parents=True)
        (folder / "stat").write_text(f"{thread} (a) b) {state} 1")
    assert take_stacks.has_uninterruptible_thread(7, tmp_path)
    (tmp_path / "7/task/8/stat").write_text("8 (python) S 1")
    assert not take_stacks.has_uninterruptible_thread(7, tmp_path)
