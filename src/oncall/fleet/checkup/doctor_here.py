"""Check whether this machine can record jobs and query nodes."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from oncall import __version__
from oncall.core.configuration import configuration_files
from oncall.core.errors import OncallError
from oncall.core.printable import typed
from oncall.core.units import format_bytes, format_duration
from oncall.fleet.configuration import read_configuration
from oncall.fleet.doctor_images import (
    Images,
    hooks_for_launchers,
    hooks_text,
    image_in,
    images_here,
)
from oncall.fleet.endpoint.hello import hello
from oncall.fleet.endpoint.node import Node
from oncall.fleet.endpoint.sealed import SealedAnswers
from oncall.node.rings.unrecorded import who_is_not_recorded, why_no_ring
from oncall.node.store.places import data_dir, rings_dir, run_dir
from oncall.node.store.wire import Request

# `absent`: missing, but not needed on every machine
State = Literal["ok", "wrong", "absent", "unknown"]  # unknown: it could not be checked

_SSH_PORT = 22
_INFINIBAND = Path("/sys/class/infiniband")


@dataclass(frozen=True)
class Check:
    """The result of one check, and what to type to fix it."""

    name: str
    state: State
    text: str
    next: str = ""


def check_here(images: Sequence[Path] = ()) -> list[Check]:
    """Check this machine and the images in these folders; changes nothing."""
    return [
        Check("oncall", "ok", f"{__version__} on Python {sys.version.split()[0]}"),
        *_hooks(images),
        _run_dir(),
        *_evidence(),
        _ssh(),
        _sshd(),
        _configuration(),
        _gpus(),
        _rdma(),
    ]


def _hooks(images: Sequence[Path]) -> Iterator[Check]:
    """The hook libraries, and the C libraries they would be loaded with."""
    try:
        hooks = hooks_for_launchers()
    except OncallError as error:
        again = "pip install --force-reinstall --no-deps oncall_console-*.whl"
        yield Check("hooks", "wrong", str(error), again)
        return
    yield _images("hooks", hooks_text(hooks), "oncall hooks install DIR")
    yield _images("images", images_here(hooks), _NOT_THERE)
    for root in images:
        try:
            yield _images("image", image_in(hooks, root), _NOT_THERE)
        except OncallError as error:
            yield Check("image", "wrong", str(error))


_NOT_THERE = "oncall hooks env  # do not use it for jobs in that image"


def _images(name: str, images: Images, next_step: str) -> Check:
    if images.problems:
        return Check(name, "wrong", "; ".join(images.problems), next_step)
    return Check(name, "ok", images.text)


def _run_dir() -> Check:
    rings = rings_dir(run_dir())
    if not rings.is_dir():
        text = f"no folder {rings}: jobs on this machine are not recorded"
        return Check("run dir", "absent", text, "oncall collect  # creates it, on a node")
    if not os.access(rings, os.W_OK | os.X_OK):
        return Check("run dir", "wrong", f"no permission to write in {rings}", f"ls -ld {rings}")
    if problem := why_no_ring(rings):
        return Check("run dir", "wrong", problem, f"df -h {rings}")
    if problem := who_is_not_recorded(rings):
        return Check("run dir", "wrong", problem, f"chmod 1777 {rings}")
    return Check("run dir", "ok", str(rings))


def _evidence() -> Iterator[Check]:
    """The collector, the data folder and the rings, as this machine's endpoint reports them."""
    try:
        status = hello(Node.here(), Request("hello"), SealedAnswers())
    except (OncallError, OSError) as error:
        yield Check("data dir", "wrong", str(error), f"ls -ld {data_dir()}")
        return
    # A console has neither folder; on a node that has one, the other is missing.
    is_node = data_dir().is_dir() or rings_dir(run_dir()).is_dir()
    collector = status["collector"]
    problems = status.get("problems")
    if collector["alive"] and problems:
        yield Check("collector", "wrong", str(problems[0]), "journalctl -u oncall-collect -n 50")
    elif collector["alive"]:
        yield Check("collector", "ok", "running")
    else:
        state: State = "wrong" if is_node else "absent"
        next_step = "systemctl start oncall-collect  # or: oncall collect"
        yield Check("collector", state, collector["problem"], next_step)
    yield _data(status["free_bytes"], status["shards"])
    rings = status["rings"]
    jobs = ", ".join(sorted(rings["jobs"])) or "no job"
    if rings["problems"]:
        yield Check("rings", "wrong", rings["problems"][0], "oncall hooks show")
    elif rings["unrecorded"]:
        yield Check("rings", "wrong", rings["unrecorded"][0], "oncall hooks show")
    elif rings["dropped"]:
        text = f"{rings['dropped']:,} records dropped because rings were full"
        yield Check("rings", "wrong", text, "oncall hooks show")
    else:
        state = "ok" if rings["alive"] else "absent"
        text = f"{rings['alive']} alive, {rings['died']} of processes that died, in {jobs}"
        yield Check("rings", state, text, "" if rings["alive"] else "oncall hooks env")


def _data(free_bytes: int | None, shards: dict[str, int | None]) -> Check:
    folder, newest_ns = data_dir(), shards["newest_ns"]
    if free_bytes is None:
        return Check("data dir", "absent", f"no folder {folder}: nothing was collected here")
    text = f"{folder}, {format_bytes(free_bytes)} free, {shards['count']} shards"
    if newest_ns is not None:
        import time

        text += f", the newest {format_duration(max(0, time.time_ns() - newest_ns))} old"
    low = free_bytes < 2**30
    return Check("data dir", "wrong" if low else "ok", text, f"df -h {folder}" if low else "")


def _ssh() -> Check:
    path = shutil.which("ssh")
    if path is None:
        return Check(
            "ssh", "wrong", "ssh not found: nodes cannot be queried", "apt install openssh-client"
        )
    return Check("ssh", "ok", path)


def _sshd() -> Check:
    try:
        with socket.create_connection(("127.0.0.1", _SSH_PORT), 1.0):
            return Check("sshd", "ok", f"listening on port {_SSH_PORT}")
    except OSError:
        text = f"nothing listens on port {_SSH_PORT}: consoles cannot query this machine"
        return Check("sshd", "absent", text)


def _configuration() -> Check:
    try:
        configuration = read_configuration()
    except OncallError as error:
        return Check("configuration", "wrong", str(error))
    files = [str(path) for path in configuration_files() if path.is_file()]
    if not files:
        path = configuration_files()[-1]
        return Check("configuration", "absent", f"none; you can list hosts in {path}")
    hosts = configuration.hosts
    text = f"{', '.join(files)}: " + (f"hosts {hosts}" if hosts else "no hosts")
    return Check(
        "configuration", "ok", text, typed("oncall doctor {hosts}", hosts=hosts) if hosts else ""
    )


def _gpus() -> Check:
    if not Path("/proc/driver/nvidia").is_dir():
        return Check("GPUs", "absent", "no NVIDIA driver")
    if _lacks("pynvml"):
        text = "NVIDIA driver found, but not pynvml, which is needed to read GPU counters"
        return Check("GPUs", "absent", text, "pip install nvidia-ml-py")
    return Check("GPUs", "ok", "NVIDIA driver and pynvml found")


def _rdma() -> Check:
    names = sorted(path.name for path in _INFINIBAND.iterdir()) if _INFINIBAND.is_dir() else []
    if not names:
        return Check("RDMA", "absent", "no RDMA device")
    return Check("RDMA", "ok", ", ".join(names))


def _lacks(module: str) -> bool:
    find: Callable[[str], object] = find_spec
    return find(module) is None
