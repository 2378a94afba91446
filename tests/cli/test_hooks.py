"""`oncall hooks`: what it prints is taken over as it stands by shells, srun and Kubernetes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from oncall.native import hooks_library, verbs_library
from oncall.native.elf import read_elf

from ..command import Done, oncall

Recording = Callable[..., Any]  # tests/conftest.py: starts a process that records


def hooks(*arguments: str, **environment: str) -> Done:
    return oncall("hooks", *arguments, **environment)


def environment_after(exports: str, **environment: str) -> dict[str, str]:
    """The variables of a program that a shell starts after evaluating `exports`."""
    done = subprocess.run(
        ["/bin/sh", "-c", 'eval "$1"; exec env -0', "sh", exports],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=True,
    )
    return dict(pair.split("=", 1) for pair in done.stdout.split("\0") if pair)


def test_a_shell_takes_it_over(tmp_path: Path) -> None:
    run_dir = tmp_path / "a place; with $(signs) 'in' it"
    done = hooks("env", "--run-dir", str(run_dir), "--job", "it's $HOME", "--config", "tp=2 pp=4")
    assert done.stderr == ""  # explained on a terminal only
    found = environment_after(done.stdout)
    library = str(hooks_library())
    assert found["LD_PRELOAD"] == found["NCCL_PROFILER_PLUGIN"] == library
    assert found["ONCALL_RUN_DIR"] == str(run_dir)
    assert found["ONCALL_JOB"] == "it's $HOME"
    assert found["ONCALL_JOB_CONFIG"] == "tp=2 pp=4"


def test_work_requests_take_a_second_library(tmp_path: Path) -> None:
    both = f"{hooks_library()}:{verbs_library()}"
    found = environment_after(hooks("env", "--verbs", "--run-dir", str(tmp_path)).stdout)
    assert (found["LD_PRELOAD"], found["NCCL_PROFILER_PLUGIN"]) == (both, str(hooks_library()))
    assert f",LD_PRELOAD={both}" in hooks("env", "slurm", "--verbs").stdout
    assert both in hooks("env", "kubernetes", "--verbs").stdout


def test_the_run_dir_is_asked_to_the_job() -> None:
    done = hooks("env", ONCALL_RUN_DIR="/somewhere/else")
    assert environment_after(done.stdout)["ONCALL_RUN_DIR"] == "/somewhere/else"


def test_options_of_srun(tmp_path: Path) -> None:
    done = hooks("env", "slurm", "--run-dir", str(tmp_path), "--job", "llama")
    [option] = done.stdout.split()
    first, *others = option.removeprefix("--export=").split(",")
    assert first == "ALL"
    assert dict(pair.split("=", 1) for pair in others) == {
        "ONCALL_RUN_DIR": str(tmp_path),
        "ONCALL_JOB": "llama",
        "NCCL_PROFILER_PLUGIN": str(hooks_library()),
        "LD_PRELOAD": str(hooks_library()),
    }


def test_what_srun_cannot_pass_is_refused() -> None:
    done = hooks("env", "slurm", "--config", "tp=2 pp=2")
    assert (done.returncode, done.stdout) == (2, "")
    assert "srun cannot pass ONCALL_JOB_CONFIG" in done.stderr


def test_a_pod_of_kubernetes(tmp_path: Path) -> None:
    done = hooks("env", "kubernetes", "--run-dir", str(tmp_path), "--job", "a: b")
    pod = YAML(typ="safe").load(done.stdout)
    [container] = pod["containers"]
    values = {entry["name"]: entry.get("value") for entry in container["env"]}
    assert values["ONCALL_JOB"] == "a: b"
    assert values["LD_PRELOAD"] == str(hooks_library())
    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert {volume["name"] for volume in pod["volumes"]} == set(mounted)
    assert Path(values["LD_PRELOAD"]).parent == Path(mounted["oncall-hooks"])
    assert values["ONCALL_RUN_DIR"] == mounted["oncall-run"]


def test_the_library_can_be_preloaded_into_any_program(tmp_path: Path) -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", "echo runs"],
        capture_output=True,
        text=True,
        env={**os.environ, "LD_PRELOAD": str(hooks_library()), "ONCALL_RUN_DIR": str(tmp_path)},
        check=True,
    )
    assert (done.stdout, done.stderr) == ("runs\n", "")
    assert list(tmp_path.iterdir()) == []  # no communicator, no ring


@pytest.mark.parametrize(
    ("before", "options", "chained"),
    [
        ({"NCCL_PROFILER_PLUGIN": "/opt/inspector.so"}, (), "/opt/inspector.so"),
        ({"NCCL_PROFILER_PLUGIN": "inspector"}, (), "inspector"),
        ({"NCCL_PROFILER_PLUGIN": "NONE"}, (), None),
        ({}, (), None),
        ({}, ("--chain-profiler", "inspector"), "inspector"),
        ({"NCCL_PROFILER_PLUGIN": "/opt/other.so"}, ("--chain-profiler", "mine"), "mine"),
        (
            {"NCCL_PROFILER_PLUGIN": str(hooks_library()), "ONCALL_CHAIN_PROFILER": "inspector"},
            (),
            "inspector",
        ),
    ],
)
def test_a_plugin_that_was_there_stays(
    before: dict[str, str], options: tuple[str, ...], chained: str | None
) -> None:
    """NCCL has one place for a plugin, which ours takes; evaluated twice it still holds."""
    found = environment_after(hooks("env", *options, **before).stdout)
    assert found["NCCL_PROFILER_PLUGIN"] == str(hooks_library())
    assert found.get("ONCALL_CHAIN_PROFILER") == chained


# ------------------------------------------------------------------- a stable path


def test_launchers_name_what_is_installed(tmp_path: Path) -> None:
    installed = {"ONCALL_HOOKS_DIR": str(tmp_path / "hooks")}
    stable = tmp_path / "hooks/liboncall_hooks.so"
    done = hooks("install", str(tmp_path / "hooks"), **installed)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{stable}\n", "")
    found = environment_after(hooks("env", "--verbs", **installed).stdout)
    both = f"{stable}:{tmp_path}/hooks/liboncall_verbs.so"
    assert (found["NCCL_PROFILER_PLUGIN"], found["LD_PRELOAD"]) == (str(stable), both)
    pod = YAML(typ="safe").load(hooks("env", "kubernetes", **installed).stdout)
    mounts = {mount["name"]: mount for mount in pod["containers"][0]["volumeMounts"]}
    assert mounts["oncall-hooks"]["mountPath"] == str(tmp_path / "hooks")  # its links and all
    other = hooks("path", "--architecture", "aarch64", "--verbs", **installed).stdout
    assert other == f"{tmp_path}/hooks/current/aarch64/liboncall_verbs.so\n"
    assert read_elf(Path(other.strip())).machine == "aarch64"


def test_what_is_installed_may_be_older_than_the_package(tmp_path: Path) -> None:
    installed = {"ONCALL_HOOKS_DIR": str(tmp_path)}
    hooks("install", str(tmp_path))
    (tmp_path / "versions/0.0.9-older").mkdir()
    (tmp_path / "current").unlink()
    [current] = (one for one in (tmp_path / "versions").iterdir() if one.name != "0.0.9-older")
    current.rename(tmp_path / "versions/0.0.9-before")
    (tmp_path / "current").symlink_to("versions/0.0.9-before")
    done = hooks("env", **installed)
    assert str(tmp_path / "liboncall_hooks.so") in done.stdout
    assert "has hooks 0.0.9-before" in done.stderr
    assert f"oncall hooks install {tmp_path}" in done.stderr
    done = hooks("install", str(tmp_path), **installed)
    assert done.stdout == f"{tmp_path}/liboncall_hooks.so\n"
    assert f"rm -r {tmp_path}/versions/0.0.9-before" in done.stderr
    assert "ONCALL_HOOKS_DIR" not in done.stderr


@pytest.mark.parametrize("folder", ["/dev/null/hooks", "with space", "a:b", "a,b"])
def test_where_hooks_cannot_be_installed_is_said(tmp_path: Path, folder: str) -> None:
    done = hooks("install", folder if folder.startswith("/") else str(tmp_path / folder))
    assert (done.returncode, done.stdout) == (2, "")
    assert "cannot be" in done.stderr


# ------------------------------------------------------------------- show


def test_rings_are_listed(recording: Recording, tmp_path: Path) -> None:
    alive = recording(RANK="10", ONCALL_JOB="llama")
    full = recording(RANK="2", ONCALL_JOB="llama", ONCALL_RING_RECORDS="64")
    dead = recording(ONCALL_JOB="\x1b[31mred")
    alive.tell("write 3")
    full.tell("write 100")
    dead.kill()
    done = hooks("show", "--run-dir", str(tmp_path / "run"))
    heading, *rows = (line.split() for line in done.stdout.splitlines())
    assert heading[:-1] == ["rank", "job", "pid", "state", "records", "unread", "dropped"]
    found = [row[:-1] for row in rows]
    assert found[:2] == [
        ["2", "llama", str(full.process.pid), "alive", "64", "64", "36"],
        ["10", "llama", str(alive.process.pid), "alive", "3", "3", "0"],
    ]
    assert found[2][0] == "?"
    assert found[2][3] == "died"
    assert "\x1b" not in done.stdout


def test_a_ring_that_cannot_be_read_hides_no_other(recording: Recording, tmp_path: Path) -> None:
    recording(RANK="1")
    (tmp_path / "run/rings/0-0.ring").write_bytes(b"junk")
    done = hooks("show", "--run-dir", str(tmp_path / "run"))
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 2
    assert "0-0.ring: not a ring" in done.stderr


@pytest.mark.parametrize("there", [True, False])
def test_no_rings(tmp_path: Path, there: bool) -> None:
    if there:
        (tmp_path / "rings").mkdir()
    done = hooks("show", "--run-dir", str(tmp_path))
    assert done.returncode == (0 if there else 2)
    assert done.stdout == ""
    assert str(tmp_path / "rings") in done.stderr
