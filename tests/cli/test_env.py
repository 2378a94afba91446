"""`oncall env`: what it prints is taken over as it stands by each launcher."""

from __future__ import annotations

import os
import subprocess

import pytest
from ruamel.yaml import YAML

from oncall.fleet.checkup.evidence_settings import (
    PIPE,
    Versions,
    evidence_settings,
    job_checks,
    parse_version,
    ras_remark,
)

from ..command import Done, oncall


def env(*arguments: str) -> Done:
    return oncall("env", *arguments, "--no-hooks")


def names(torch: str | None = None, nccl: str | None = None) -> dict[str, str]:
    versions = Versions(parse_version(torch), parse_version(nccl))
    return {one.name: one.value for one in evidence_settings("/e/j", "/tmp/j", versions)}


def shell(lines: str, **variables: str) -> dict[str, str]:
    """The environment after a shell has run the lines."""
    done = subprocess.run(
        ["/bin/sh", "-uc", 'eval "$1"; env', "sh", lines.replace("mkdir -p", "true")],
        capture_output=True,
        text=True,
        env={"PATH": os.environ["PATH"], **variables},
        check=True,
    )
    return dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)


def test_a_shell_takes_it_over_with_its_comments() -> None:
    reported = shell(env("torchrun", "--job", "llama", "--folder", "/tmp/no such/e").stdout)
    assert reported["TORCH_FR_BUFFER_SIZE"] == reported["TORCH_NCCL_TRACE_BUFFER_SIZE"] == "2000"
    assert reported["TORCH_FR_DUMP_TEMP_FILE"] == "/tmp/no such/e/llama/fr_trace_rank_"
    assert reported[PIPE] == f"/tmp/fr_{os.getuid()}_llama_rank_"


def test_a_batch_script_names_the_job_by_its_number() -> None:
    folder = """/e"; echo '$HOME' `id` $(id)"""
    reported = shell(env("slurm", "--folder", folder).stdout, SLURM_JOB_ID="77")
    assert reported[PIPE] == f"/tmp/fr_{os.getuid()}_77_rank_"
    assert reported["TORCH_FR_DUMP_TEMP_FILE"] == f"{folder}/slurm-77/fr_trace_rank_"
    named = shell(env("slurm", "--job", "llama").stdout, SLURM_JOB_ID="77")
    assert named[PIPE] == f"/tmp/fr_{os.getuid()}_77_rank_"


@pytest.mark.parametrize("launcher", ["torchrun", "kubernetes", "ray", "deepspeed"])
def test_a_pipe_needs_a_name_of_its_own(launcher: str) -> None:
    unnamed, named = env(launcher), env(launcher, "--job", "llama")
    comments = (unnamed.stderr if launcher == "deepspeed" else unnamed.stdout).splitlines()
    assert any(line.startswith(f"# {PIPE}: not set, as") for line in comments)
    assert PIPE not in "".join(line for line in comments if not line.startswith("#"))
    assert "_llama_rank_" in named.stdout


@pytest.mark.parametrize("launcher", ["kubernetes", "ray"])
def test_yaml_keeps_a_folder_as_it_is(launcher: str) -> None:
    folder = """/é😀" $(HOME): '#'"""
    loaded = YAML(typ="safe").load(env(launcher, "--folder", folder).stdout)
    if launcher == "kubernetes":
        values = [one["value"].replace("$$", "$") for one in loaded["env"]]
    else:
        values = [*loaded["env_vars"].values()]
    assert f"{folder}/train/fr_trace_rank_" in values
    assert not any("$(HOME)" in one["value"].replace("$$", "") for one in loaded.get("env", ()))


@pytest.mark.parametrize(
    ("launcher", "folder"), [("deepspeed", "/e; id"), ("kubernetes", "/e\nprivileged: true")]
)
def test_a_folder_that_cannot_be_written_safely(launcher: str, folder: str) -> None:
    done = env(launcher, "--folder", folder)
    assert (done.returncode, done.stdout) == (2, "")


def test_a_wrong_version_is_an_error() -> None:
    done = env("ray", "--torch", "newest")
    assert (done.returncode, "is not a version" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("nccl", "value"),
    [
        ("2.23.4", None),
        ("2.26.2", "0"),
        ("2.26", "0"),
        ("2.27", "0"),
        ("2.25", None),
        ("2.28", None),
        ("2.27.7", "0"),
        ("2.28.3", None),
        ("2.28.7", "1"),
        (None, None),
    ],
)
def test_ras_by_version(nccl: str | None, value: str | None) -> None:
    assert names(nccl=nccl).get("NCCL_RAS_ENABLE") == value
    assert bool(ras_remark(parse_version(nccl))) == (value is None)


def test_what_a_running_job_would_leave() -> None:
    def states(torch: str, nccl: str | None = None, **settings: str) -> dict[str, str]:
        versions = Versions(parse_version(torch), parse_version(nccl))
        return {check.name: check.state for check in job_checks(settings, versions)}

    assert states("2.13.0")["Flight Recorder"] == "ok"
    assert states("2.6.0")["Flight Recorder"] == "wrong"
    assert states("2.6.0", TORCH_FR_BUFFER_SIZE="9")["Flight Recorder"] == "wrong"
    assert states("2.6.0", TORCH_NCCL_TRACE_BUFFER_SIZE="9")["Flight Recorder"] == "ok"
    assert states("2.13.0", TORCH_FR_BUFFER_SIZE="0")["Flight Recorder"] == "wrong"
    assert states("2.13.0", TORCH_NCCL_DUMP_ON_TIMEOUT="1")["dump"] == "ok"
    assert states("2.6.0")["dump"] == "wrong"
    assert states("2.6.0", TORCH_DISTRIBUTED_DEBUG="DETAIL")["dump"] == "ok"
    assert states("2.9.0")["dump"] == states("unknown")["dump"] == "absent"
    assert states("2.9.0", TORCH_NCCL_DUMP_ON_TIMEOUT="0")["dump"] == "wrong"
    assert states("2.9", NCCL_DEBUG="INFO", NCCL_DEBUG_FILE="/tmp/log")["NCCL log"] == "wrong"
    assert states("2.9", "2.27.3")["RAS"] == "wrong"
    assert states("2.9", "2.27.3", NCCL_RAS_ENABLE="0")["RAS"] == "absent"
    assert states("2.9", "2.28.9")["RAS"] == "ok"


def test_the_command_of_another_users_path_is_quoted() -> None:
    settings = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": "/tmp/x; touch owned #"}
    (log,) = [one for one in job_checks(settings, Versions()) if one.name == "NCCL log"]
    assert "NCCL_DEBUG_FILE='/tmp/x; touch owned #.%h.%p'" in log.next
    settings["NCCL_DEBUG_FILE"] = "/tmp/x\nreboot"
    (log,) = [one for one in job_checks(settings, Versions()) if one.name == "NCCL log"]
    assert "NCCL_DEBUG_FILE=FILE" in log.next
