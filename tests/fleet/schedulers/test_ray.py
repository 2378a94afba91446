"""A Ray job's nodes, through a stand-in for `ray list`."""

from __future__ import annotations

import pytest

from oncall.core.errors import UsageError
from oncall.fleet.schedulers.ray import ray_hosts

from .conftest import Cluster

LISTED = {
    "jobs": [
        {"job_id": "01000000", "submission_id": "raysubmit_abc", "status": "RUNNING"},
        {"job_id": None, "submission_id": "raysubmit_new", "status": "PENDING"},
        {"job_id": "02000000", "submission_id": None, "status": "FAILED"},
    ],
    "actors": [
        {"actor_id": "a", "job_id": "01000000", "node_id": "n1", "state": "ALIVE"},
        {"actor_id": "b", "job_id": "01000000", "node_id": "n2", "state": "DEAD"},
        {"actor_id": "c", "job_id": "03000000", "node_id": "n3", "state": "ALIVE"},
    ],
    "nodes": [
        {"node_id": "n1", "node_ip": "10.0.0.1", "state": "ALIVE"},
        {"node_id": "n2", "node_ip": "10.0.0.2", "state": "ALIVE"},
        {"node_id": "n3", "node_ip": "10.0.0.3", "state": "ALIVE"},
    ],
}


@pytest.fixture
def ray(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    cluster.known = {"ray": LISTED}
    for name, value in cluster.write().items():
        monkeypatch.setenv(name, value)
    return cluster


@pytest.mark.usefixtures("ray")
@pytest.mark.parametrize("job", ["01000000", "raysubmit_abc"])
def test_the_nodes_of_its_actors(job: str) -> None:
    assert ray_hosts(job) == ("10.0.0.1", "10.0.0.2")


@pytest.mark.usefixtures("ray")
@pytest.mark.parametrize(
    ("job", "expected"),
    [
        ("raysubmit_none", "no such job"),
        ("raysubmit_new", "has not started: PENDING"),
        ("02000000", "none of its actors"),
        ("a b", "not the id of a Ray job"),
    ],
)
def test_why_a_job_has_no_nodes(job: str, expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        ray_hosts(job)


def test_a_ray_that_does_not_answer(ray: Cluster) -> None:
    ray.known["ray_error"] = "Failed to connect to API server. Please check the API server log"
    ray.write()
    with pytest.raises(UsageError, match="ray: Failed to connect to API server"):
        ray_hosts("01000000")
