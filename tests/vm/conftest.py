"""The virtual machine: built once and kept under build/vm, run once for each script."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from oncall import native

HERE = Path(__file__).parent
PROJECT = HERE.parents[1]
IMAGE = PROJECT / "build" / "vm"
LIMIT_S = 540
PROGRAMS = (
    *("qemu-system-x86_64", "debootstrap", "mksquashfs", "cpio", "busybox", "modprobe"),
    *("dpkg", "apt-get"),
)


@dataclass(frozen=True)
class Guest:
    """What the machine left: its results, and the folder with its shards beside them."""

    results: dict[str, Any]
    control: Path

    @property
    def data(self) -> Path:
        return self.control / "data"


def boot(script: str, tmp_path_factory: pytest.TempPathFactory) -> Guest:
    """Run a script in the machine, which is built if it has to be."""
    if "ONCALL_VM" not in os.environ:
        pytest.skip("takes minutes and builds a virtual machine: `make test-vm` runs it")
    if missing := [program for program in PROGRAMS if shutil.which(program) is None]:
        pytest.skip(f"no {', '.join(missing)} here: `make vm-packages` installs what it takes")
    if not (IMAGE / "initrd.cpio").exists():
        if os.geteuid() != 0:
            pytest.skip("building the virtual machine's file system takes root (debootstrap)")
        kernel = subprocess.run(["apt-cache", "show", "linux-image-amd64"], capture_output=True)
        if kernel.returncode != 0:
            pytest.skip("apt knows no linux-image-amd64 here: the machine runs Debian's kernel")
    subprocess.run([HERE / "build_image.sh", IMAGE], check=True, timeout=600)
    control = tmp_path_factory.mktemp("control")
    for library in (native.hooks_library(), native.verbs_library()):
        shutil.copy(library, control)
    shutil.copytree(native.standin_folder(), control / "standin")
    command = [HERE / "run.sh", IMAGE, PROJECT, HERE / script, str(LIMIT_S)]
    done = subprocess.run(
        command, env={**os.environ, "CONTROL": str(control)}, timeout=LIMIT_S + 60, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    results = json.loads((control / "results.json").read_text())
    if kept := os.environ.get("ONCALL_VM_RESULTS"):
        shutil.copy(control / "results.json", kept)
    return Guest(results, control)


@pytest.fixture(scope="session")
def guest(tmp_path_factory: pytest.TempPathFactory) -> Guest:
    """Two NICs: pings, probes, the collector, perftest under the verbs shim."""
    return boot("guest.sh", tmp_path_factory)


@pytest.fixture(scope="session")
def job(tmp_path_factory: pytest.TempPathFactory) -> Guest:
    """Four nodes: jobs of a rank on each, sound and broken."""
    return boot("guest_collectives.sh", tmp_path_factory)
