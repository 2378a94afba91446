"""`oncall env`: what it prints is taken over as it stands by each launcher."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from ruamel.yaml import YAML

from oncall.fleet.evidence_settings import (
    Versions,
    evidence_settings,
    job_checks,
    parse_version,
    ras_remark,
)


def env(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "oncall.cli.main", "env", *arguments, "--no-hooks"],
        capture_output=True,
        text=True,
        check=False,
    )


def names(torch: str | None = None, nccl: str | None = None) -> dict[str, str]:
    versions = Versions(parse_version(torch), parse_version(nccl))
    return {one.name: one.value for one in evidence_settings("/e/j", "j", versions)}


def test_a_shell_takes_it_over_with_its_comments() -> None:
    exports = env("torchrun", "--job", "llama", "--folder", "/tmp/no such/e").stdout
    exports = exports.replace("mkdir -p", "true")
    done = subprocess.run(
        ["/bin/sh", "-c", 'eval "$1"; env', "sh", exports],
        capture_output=True,
        text=True,
        env={"PATH": os.environ["PATH"]},
        check=True,
    )
    told = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    assert told["TORCH_FR_BUFFER_SIZE"] == told["TORCH_NCCL_TRACE_BUFFER_SIZE"] == "2000"
    assert told["TORCH_FR_DUMP_TEMP_FILE"] == "/tmp/no such/e/llama/fr_trace_rank_"


def test_a_batch_script_names_the_job_by_its_number() -> None:
    script = env("slurm").stdout.replace("mkdir -p", "true")
    done = subprocess.run(
        ["/bin/sh", "-c", f"{script}\nenv"],
        capture_output=True,
        text=True,
        env={"PATH": os.environ["PATH"], "SLURM_JOB_ID": "77"},
        check=True,
    )
    assert "TORCH_NCCL_DEBUG_INFO_PIPE_FILE=/tmp/fr_slurm-77_rank_" in done.stdout


@pytest.mark.parametrize("launcher", ["kubernetes", "ray"])
def test_yaml(launcher: str) -> None:
    told = YAML(typ="safe").load(env(launcher, "--torch", "2.9").stdout)
    if launcher == "kubernetes":
        variables = {one["name"]: one["value"] for one in told["env"]}
    else:
        variables = told["env_vars"]
    assert variables["TORCH_FR_BUFFER_SIZE"] == "2000"
    assert "TORCH_NCCL_TRACE_BUFFER_SIZE" not in variables


def test_deepspeed_takes_no_comments() -> None:
    done = env("deepspeed")
    assert all(line.count("=") and not line.startswith("#") for line in done.stdout.splitlines())
    assert "# NCCL_DEBUG: " in done.stderr


def test_a_wrong_version_is_an_error() -> None:
    done = env("ray", "--torch", "newest")
    assert (done.returncode, "is not a version" in done.stderr) == (2, True)


def test_names_by_version() -> None:
    assert "TORCH_FR_BUFFER_SIZE" not in names("2.7.1")
    assert "TORCH_NCCL_TRACE_BUFFER_SIZE" in names("2.7.1")
    assert {"TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"} <= names().keys()


@pytest.mark.parametrize(
    ("nccl", "value"),
    [
        ("2.23.4", None),
        ("2.26.2", "0"),
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
    assert states("2.9", NCCL_DEBUG="INFO", NCCL_DEBUG_FILE="/tmp/log")["NCCL log"] == "wrong"
    assert states("2.9", "2.27.3")["RAS"] == "wrong"
    assert states("2.9", "2.27.3", NCCL_RAS_ENABLE="0")["RAS"] == "absent"
    assert states("2.9", "2.28.9")["RAS"] == "ok"
