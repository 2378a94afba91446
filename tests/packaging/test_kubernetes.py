"""The manifest of the collector: what its pods mount, may do and run fits the project."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML
from typer.testing import CliRunner

from oncall.cli.commands import app

PACKAGING = Path(__file__).parents[2] / "packaging"
UNIT = (PACKAGING / "systemd" / "oncall-collect.service").read_text()


@pytest.fixture(scope="module")
def documents() -> dict[str, Any]:
    reader = YAML(typ="safe")
    read = [*reader.load_all((PACKAGING / "kubernetes" / "collector.yaml").read_text())]
    assert all(document["apiVersion"] for document in read)
    return {document["kind"]: document for document in read}


@pytest.fixture
def pod(documents: dict[str, Any]) -> dict[str, Any]:
    pod: dict[str, Any] = documents["DaemonSet"]["spec"]["template"]["spec"]
    return pod


def test_pods_are_selected_by_the_label_that_the_guide_names(documents: dict[str, Any]) -> None:
    collectors = documents["DaemonSet"]
    namespace = collectors["metadata"]["namespace"]
    assert namespace == documents["Namespace"]["metadata"]["name"]
    labels = collectors["spec"]["selector"]["matchLabels"]
    assert labels == collectors["spec"]["template"]["metadata"]["labels"]
    ((label, value),) = labels.items()
    guide = PACKAGING.parent / "docs" / "guide" / "schedulers.md"
    assert f"kube:{label}={value}@{namespace}" in guide.read_text()


def test_every_mount_has_its_volume(pod: dict[str, Any]) -> None:
    volumes = {volume["name"] for volume in pod["volumes"]}
    containers = [*pod["initContainers"], *pod["containers"]]
    mounted = {mount["name"] for one in containers for mount in one["volumeMounts"]}
    assert mounted == volumes


def test_jobs_find_what_the_collector_mounts(pod: dict[str, Any]) -> None:
    """A pod of a job mounts the same folders of the host."""
    paths = {one["hostPath"]["path"] for one in pod["volumes"] if "hostPath" in one}
    guide = (PACKAGING.parent / "docs" / "guide" / "hooks.md").read_text()
    job = set(re.findall(r'hostPath: \{path: "([^"]+)"', guide))
    assert job and job <= paths


def test_capabilities_are_no_more_than_the_unit_has(pod: dict[str, Any]) -> None:
    line = re.search(r"^CapabilityBoundingSet=(.*)$", UNIT, re.MULTILINE)
    assert line
    unit = {name.removeprefix("CAP_") for name in line[1].split()}
    for container in (*pod["initContainers"], *pod["containers"]):
        context = container["securityContext"]
        assert context["capabilities"]["drop"] == ["ALL"]
        assert set(context["capabilities"]["add"]) <= unit
        assert not context.get("privileged")
        assert not context["allowPrivilegeEscalation"]
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}


def test_limits_are_the_units(pod: dict[str, Any]) -> None:
    limits = pod["containers"][0]["resources"]["limits"]
    assert f"MemoryMax={limits['memory'].removesuffix('i')}\n" in UNIT
    assert limits["cpu"] == "1" and "CPUQuota=100%\n" in UNIT


def test_containers_run_commands_that_there_are(pod: dict[str, Any]) -> None:
    collector, hooks = pod["containers"][0], pod["initContainers"][0]
    assert CliRunner().invoke(app, [*collector["args"], "--help"]).exit_code == 0
    command = hooks["command"][-1].rpartition("&& oncall ")[2].split()
    assert CliRunner().invoke(app, [*command, "--help"]).exit_code == 0
    assert collector["image"] == hooks["image"]


def test_the_image_starts_the_collector_and_keeps_evidence_in_the_mounted_folders(
    pod: dict[str, Any],
) -> None:
    text = (PACKAGING / "container" / "Containerfile").read_text()
    assert 'ENTRYPOINT ["oncall"]' in text and 'CMD ["collect"]' in text
    mounts = {one["mountPath"] for one in pod["containers"][0]["volumeMounts"]}
    folders = re.findall(r"ONCALL_(?:DATA|RUN)_DIR=(\S+)", text)
    assert len(folders) == 2 and set(folders) <= mounts


def test_the_image_takes_oncall_from_its_wheel() -> None:
    """What installs it first must not ask an index; `oncall` there is another project."""
    text = (PACKAGING / "container" / "Containerfile").read_text()
    project = tomllib.loads((PACKAGING.parent / "pyproject.toml").read_text())["project"]
    options, name = re.findall(r"pip install (.*?) (oncall\S*)", text)[0]
    assert "--no-index" in options and "--find-links" in options
    assert name == project["name"]
    (again, extras) = re.findall(r"'(oncall\S*)\[(\S+)\]'", text)[0]
    assert again == project["name"]
    assert set(extras.split(",")) <= set(project["optional-dependencies"])
