"""The chart, rendered by Helm: what it makes is what the plain manifests say.

Rendered by the `helm` program, or by Helm's own library from PyPI (`pip install helm-python-sdk`).
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

PACKAGING = Path(__file__).parents[2] / "packaging"
CHART = PACKAGING / "helm" / "oncall"
WATCHES = {
    "llama-405b": {
        "arguments": ["--logs=/logs/llama-405b", "--recordings=/logs/llama-405b/dumps"],
        "logs": "training-logs",
        "secret": "oncall-watch",
    },
    "mixtral": {"arguments": ["--ras=mixtral-0"]},
}


def rendered(tmp_path: Path, values: dict[str, Any]) -> list[dict[str, Any]]:
    """The documents of the chart with these values, in a namespace of their own."""
    if shutil.which("helm") is not None:
        file = tmp_path / "values.json"
        file.write_text(json.dumps(values))
        command = ("helm", "template", "oncall", CHART, "--namespace=watchers", f"--values={file}")
        # Helm reads its own configuration, which a test's home does not have.
        homes = {f"HELM_{what}_HOME": str(tmp_path) for what in ("CONFIG", "CACHE", "DATA")}
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env={**os.environ, **homes}
        )
        assert done.returncode == 0, done.stderr
        texts = [done.stdout]
    else:
        try:
            helm = importlib.import_module("helm_python")
        except ImportError:
            pytest.skip("there is no helm here, nor helm-python-sdk")
        with helm.Chart.load(str(CHART)) as chart:
            texts = list(chart.render(values, name="oncall", namespace="watchers").values())
    reader = YAML(typ="safe")
    return [document for text in texts for document in reader.load_all(text) if document]


def only(documents: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    (found,) = (document for document in documents if document["kind"] == kind)
    return found


def pod_of(document: dict[str, Any]) -> dict[str, Any]:
    pod: dict[str, Any] = document["spec"]["template"]["spec"]
    return pod


def test_the_collector_is_that_of_the_manifest(tmp_path: Path) -> None:
    documents = rendered(tmp_path, {})
    assert [document["kind"] for document in documents] == ["DaemonSet"]
    made = only(documents, "DaemonSet")
    plain = only(
        [*YAML(typ="safe").load_all((PACKAGING / "kubernetes" / "collector.yaml").read_text())],
        "DaemonSet",
    )
    assert made["metadata"]["namespace"] == "watchers"
    assert made["spec"]["selector"] == plain["spec"]["selector"]
    assert made["spec"]["updateStrategy"] == plain["spec"]["updateStrategy"]
    assert pod_of(made) == pod_of(plain)


def test_values_reach_the_pods(tmp_path: Path) -> None:
    values = {
        "image": "registry.local/oncall:2",
        "collector": {
            "hostPath": {"data": "/nvme/oncall"},
            "capabilities": ["DAC_OVERRIDE"],
            "runtimeClassName": "nvidia",
        },
    }
    pod = pod_of(only(rendered(tmp_path, values), "DaemonSet"))
    assert pod["runtimeClassName"] == "nvidia"
    assert pod["containers"][0]["image"] == pod["initContainers"][0]["image"] == values["image"]
    assert pod["containers"][0]["securityContext"]["capabilities"]["add"] == ["DAC_OVERRIDE"]
    paths = {one["name"]: one["hostPath"]["path"] for one in pod["volumes"] if "hostPath" in one}
    assert paths["data"] == "/nvme/oncall" and paths["run"] == "/run/oncall"


def test_each_watch_has_its_own_volume_and_what_it_mounts(tmp_path: Path) -> None:
    documents = rendered(tmp_path, {"collector": {"enabled": False}, "watches": WATCHES})
    kinds = sorted(document["kind"] for document in documents)
    assert kinds == sorted(["ConfigMap", "Deployment", "PersistentVolumeClaim"] * 2)
    deployments = {one["metadata"]["name"]: one for one in documents if one["kind"] == "Deployment"}
    for job, wanted in WATCHES.items():
        made = deployments[f"oncall-watch-{job}"]
        assert made["spec"]["replicas"] == 1 and made["spec"]["strategy"] == {"type": "Recreate"}
        pod = pod_of(made)
        (container,) = pod["containers"]
        assert container["args"][:2] == ["watch", f"--job={job}"]
        assert set(wanted["arguments"]) < set(container["args"])
        mounted = {mount["name"] for mount in container["volumeMounts"]}
        assert mounted == {volume["name"] for volume in pod["volumes"]}
        assert ("logs" in mounted, "secrets" in mounted) == ("logs" in wanted, "secret" in wanted)
    configuration = next(one for one in documents if one["kind"] == "ConfigMap")
    assert configuration["data"]["config.toml"].startswith("[watch]\nmetrics =")


def test_a_watch_of_the_chart_is_that_of_the_manifest(tmp_path: Path) -> None:
    documents = rendered(tmp_path, {"watches": {"llama-405b": WATCHES["llama-405b"]}})
    made = pod_of(only(documents, "Deployment"))
    file = PACKAGING / "kubernetes" / "oncall-watch.yaml"
    plain = pod_of(only([*YAML(typ="safe").load_all(file.read_text())], "Deployment"))
    assert made["containers"][0]["args"] == plain["containers"][0]["args"]
    assert made["securityContext"] == plain["securityContext"]
    for key in ("securityContext", "livenessProbe", "ports", "resources"):
        assert made["containers"][0][key] == plain["containers"][0][key], key
    volumes = {volume["name"] for volume in made["volumes"]}
    assert volumes == {volume["name"] for volume in plain["volumes"]}
