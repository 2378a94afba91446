"""Pods of a training job, asked through a stand-in for kubectl."""

from __future__ import annotations

import json
from typing import Any

import pytest

from oncall.core.errors import UsageError
from oncall.fleet.configuration import FleetConfiguration
from oncall.fleet.inventory import MOST_HOSTS
from oncall.fleet.reach import reach_fleet
from oncall.fleet.schedulers import kubernetes
from oncall.fleet.schedulers.kubernetes import find_pods, in_pod

from .conftest import Cluster

ALWAYS = ("--since", "3650d", "--format", "json")
JOB = "kube:pytorchjob/llama@train"


def pod(name: str, node: str, phase: str = "Running", **labels: str) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "namespace": "train",
            "labels": {"training.kubeflow.org/job-name": "llama", **labels},
        },
        "spec": {"nodeName": node, "containers": [{"name": "pytorch"}, {"name": "sidecar"}]},
        "status": {"phase": phase},
    }


@pytest.fixture
def pods(cluster: Cluster) -> Cluster:
    """Each node of the recording is a pod of that name, on a machine with another."""
    names = sorted(cluster.folders)
    cluster.known = {
        "pods": [pod(name, f"machine-{number}") for number, name in enumerate(names)],
        "nodes": {name: cluster.node(name) for name in names},
    }
    return cluster


def test_a_hang_is_found_through_kubectl_exec(pods: Cluster) -> None:
    done = pods.oncall("diagnose", "--job", "llama", "--hosts", JOB, *ALWAYS)
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert (found["findings"][0]["verdict"], found["findings"][0]["blame"][0]["rank"]) == ("H1", 5)
    assert found["coverage"]["answered"] == 4


def test_a_pod_without_python_and_one_that_ended_are_gaps(pods: Cluster) -> None:
    bare = pods.folder / "bare"
    bare.mkdir()
    (bare / "oncall").write_text("#!/bin/sh\nexec /usr/bin/env python3.99 -m oncall\n")
    (bare / "oncall").chmod(0o755)
    names = sorted(pods.folders)
    pods.known["nodes"][names[0]] = pods.node(names[0], PATH=str(bare))
    pods.known["nodes"][names[1]] = pods.node(names[1], PATH="/nowhere")
    pods.known["pods"][3]["status"]["phase"] = "Succeeded"
    done = pods.oncall("diagnose", "--job", "llama", "--hosts", JOB, *ALWAYS)
    reasons = {
        node: gap["reason"]
        for gap in json.loads(done.stdout)["coverage"]["gaps"]
        for node in gap["nodes"]
    }
    assert "no Python there" in reasons[names[0]]
    assert "not in the container" in reasons[names[1]]
    assert "completed pod; current phase is Succeeded" in reasons[names[3]]


def test_a_token_that_is_refused_before_any_pod_is_known(listed: Cluster) -> None:
    refused = "error: You must be logged in to the server (Unauthorized)"
    listed.known["kubectl_error"] = {"get": refused}
    listed.write()
    with pytest.raises(UsageError, match="kubectl: error: You must be logged in"):
        find_pods("tier=first@train", FleetConfiguration())


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            "error: unable to upgrade connection: Unauthorized",
            "does not accept your credentials",
        ),
        (
            'Error from server (Forbidden): pods "gpu001" is forbidden: User "me" cannot create '
            'resource "pods/exec" in API group "" in the namespace "train"',
            "you may not create pods/exec",
        ),
    ],
)
def test_wrong_tokens_are_said(listed: Cluster, error: str, expected: str) -> None:
    found = find_pods("tier=first@train", FleetConfiguration())
    listed.known["kubectl_error"] = {"exec": error}
    why = listed.why_not(in_pod(found, FleetConfiguration()), "gpu001")
    assert why.kind == "auth"
    assert expected in str(why)


def test_doctor_types_kubectl_exec(pods: Cluster) -> None:
    done = pods.oncall("doctor", JOB)
    assert "kubectl exec -i -n train gpu001 -- systemctl status" in " ".join(done.stdout.split())


@pytest.fixture
def listed(pods: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    pods.known["pods"][0]["metadata"]["labels"]["tier"] = "first"
    for name, value in pods.write().items():
        monkeypatch.setenv(name, value)
    return pods


@pytest.mark.usefixtures("listed")
@pytest.mark.parametrize(
    ("which", "expected"),
    [
        ("llama", "expected KIND/NAME or LABEL=VALUE"),
        ("deployment/llama", "known kinds: pytorchjob"),
        ("pytorchjob/llama@-x", "`-x` is not a namespace"),
        (
            "jobset/llama@train",
            "no pod has jobset.sigs.k8s.io/jobset-name=llama in namespace train",
        ),
    ],
)
def test_what_names_no_pod(which: str, expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        find_pods(which, FleetConfiguration())


@pytest.mark.parametrize("items", [7, "pods", {"a": 1}, [7, None, {"metadata": 3}]])
def test_a_list_of_pods_that_is_none(items: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes, "run_json_tool", lambda _: {"items": items})
    with pytest.raises(UsageError, match="no pod has"):
        find_pods("app=llama", FleetConfiguration())


def test_more_pods_than_can_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    pods = [pod(f"llama-{number}", f"node-{number}") for number in range(MOST_HOSTS + 1)]
    monkeypatch.setattr(kubernetes, "run_json_tool", lambda _: {"items": pods})
    with pytest.raises(UsageError, match="65,537 nodes; the limit is 65,536"):
        reach_fleet("kube:app=llama", None)
