"""The nodes of a Slurm job, over ssh or by srun --overlap, with stand-ins for Slurm's tools."""

from __future__ import annotations

import json
from typing import Any

import pytest

from oncall.core.errors import UsageError
from oncall.fleet.configuration import FleetConfiguration
from oncall.fleet.schedulers import slurm

from .conftest import Cluster

ALWAYS = ("--since", "3650d", "--format", "json")


def part(
    state: str = "RUNNING", nodes: str = "gpu[001-004]", reason: str = "None"
) -> dict[str, str]:
    return {"state": state, "nodes": nodes, "reason": reason}


@pytest.fixture
def running(cluster: Cluster) -> Cluster:
    cluster.known = {
        "jobs": {"1234": [part()]},
        "nodes": {name: cluster.node(name) for name in cluster.folders},
    }
    return cluster


def diagnosis(cluster: Cluster, *words: str) -> dict[str, Any]:
    done = cluster.oncall("diagnose", "--job", "llama", *words, *ALWAYS)
    assert done.returncode == 1, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_a_hang_is_found_through_srun_alone(running: Cluster) -> None:
    found = diagnosis(running, "--hosts", "srun:1234")
    assert (found["findings"][0]["verdict"], found["findings"][0]["blame"][0]["rank"]) == ("H1", 5)
    assert (found["coverage"]["answered"], found["coverage"]["nodes"]) == (4, 4)


def test_the_option_for_a_slurm_job_uses_srun_where_the_site_says_so(running: Cluster) -> None:
    running.configure('transport = "srun"\nsrun_options = ["--mem=0"]')
    assert diagnosis(running, "--slurm-job", "1234")["coverage"]["answered"] == 4


def test_doctor_says_how_to_reach_a_node_by_hand(running: Cluster) -> None:
    running.known["nodes"]["gpu002"] = running.node("gpu002", PATH="/nowhere")
    said = running.oncall("doctor", "srun:1234")
    assert said.returncode == 1
    assert "srun --jobid=1234 --overlap -N1 -n1 -w gpu002 sh -c 'command -v oncall'" in said.stdout


def test_a_job_that_srun_can_no_longer_enter_is_said_at_once(running: Cluster) -> None:
    running.known["jobs"]["1234"] = [part("NODE_FAIL")]
    said = running.oncall("diagnose", "--hosts", "srun:1234")
    assert said.returncode == 2
    assert "Slurm job 1234 ended (NODE_FAIL)" in said.stderr
    assert "--hosts 'gpu[001-004]'" in said.stderr


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            "Unable to create step for job 1234: Job/step already completing or completed",
            "the job ended",
        ),
        ("Unable to create step for job 1234: Access/permission denied", "does not let you"),
        ("Unable to allocate resources: Invalid authentication credential", "does not let you"),
        (
            "Unable to create step for job 1234: Requested nodes are busy",
            "no room for a step beside the job's",
        ),
    ],
)
def test_what_srun_says_is_a_reason(tools: Cluster, error: str, expected: str) -> None:
    tools.known["srun_error"] = error
    prefix = slurm.overlapping_step("1234", FleetConfiguration())
    why = str(tools.why_not(prefix, "gpu001"))
    assert expected in why
    assert error in why


# ------------------------------------------------------------------ whose nodes


@pytest.fixture
def tools(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    cluster.known = {"jobs": {}, "accounting": {}}
    for name, value in cluster.write().items():
        monkeypatch.setenv(name, value)
    return cluster


def test_the_running_tasks_of_an_array_are_the_job(tools: Cluster) -> None:
    tools.known["jobs"]["77"] = [
        part("PENDING", "", "Priority"),
        part("RUNNING", "gpu[001-002]"),
        part("RUNNING", "gpu[002-003]"),
        part("COMPLETED", "gpu009"),
    ]
    tools.write()
    found = slurm.slurm_job("77")
    assert found.alive
    assert found.hosts == ("gpu001", "gpu002", "gpu003")


def test_a_job_that_ended_long_ago_comes_from_the_accounting(tools: Cluster) -> None:
    ended = {"State": "CANCELLED by 1000", "NodeList": "gpu[001-002]", "Reason": "None"}
    tools.known["accounting"]["1200"] = [ended]
    tools.write()
    found = slurm.slurm_job("1200")
    assert (found.state, found.alive, found.hosts) == ("CANCELLED", False, ("gpu001", "gpu002"))


@pytest.mark.parametrize(
    ("job", "known", "expected"),
    [
        ("12;34", {}, "not the number of a Slurm job"),
        ("9", {}, "neither squeue nor sacct knows it"),
        ("9", {"accounting": None}, "the accounting does not answer: sacct: Slurm accounting"),
        (
            "9",
            {"jobs": {"9": [part("PENDING", "", "Resources")]}},
            "has no nodes: it is PENDING \\(Resources\\)",
        ),
        (
            "9",
            {"slurm_error": "slurm_load_jobs error: Unable to contact slurm controller"},
            "squeue: slurm_load_jobs error: Unable to contact slurm controller",
        ),
    ],
)
def test_why_a_job_has_no_nodes(
    tools: Cluster, job: str, known: dict[str, Any], expected: str
) -> None:
    tools.known.update(known)
    tools.write()
    with pytest.raises(UsageError, match=expected):
        slurm.slurm_job(job)


def test_without_slurm_the_missing_tool_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UsageError, match="squeue not found on this machine"):
        slurm.slurm_job("1234")
