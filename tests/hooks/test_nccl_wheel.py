"""The hooks with a real libnccl.so.2, as far as it goes without a GPU."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oncall import native
from oncall.node.rings.ring import RingReader
from oncall.node.rings.ring_layout import CommunicatorState, RecordKind

Calling = Callable[..., Any]  # conftest.py: starts a process that calls NCCL
Recorded = Callable[[Path], Any]  # conftest.py: reads a ring

_ADAPTORS = Path(__file__).with_name("nccl_adaptors.py")


def test_calls_reach_the_real_library(calling: Calling, real_nccl: Path) -> None:
    bare = calling(real_nccl, hooked=False, NCCL_SOCKET_IFNAME="lo").calls("version", "init 1 4 7")
    process = calling(real_nccl, NCCL_SOCKET_IFNAME="lo")
    assert process.calls("version", "init 1 4 7") == bare
    if bare[1] == 0:
        pytest.skip("there is a GPU here: the initialisation does not fail")
    [path] = process.rings
    with RingReader.open(path, consume=False) as ring:
        [board] = ring.communicators().rows
        version = ring.header.nccl_version
    assert board["state"] == CommunicatorState.FAILED
    assert (board["async_error"], board["rank"], board["size"]) == (bare[1], 1, 4)
    major, minor, patch = map(int, version.split("."))
    assert major * 10000 + minor * 100 + patch == bare[0]


def test_every_hook_has_its_function(real_nccl: Path) -> None:
    """The newest NCCL has all that we hook, under both names."""
    library = ctypes.CDLL(str(real_nccl / "libnccl.so.2"))
    version = ctypes.c_int()
    library.ncclGetVersion(ctypes.byref(version))
    if version.value < 23200:
        pytest.skip("this NCCL is older than the newest functions that are hooked")
    hooked = _defined_functions(native.hooks_library())
    assert len(hooked) > 30
    assert [name for name in hooked if not hasattr(library, f"p{name}")] == []


def _defined_functions(library: Path) -> list[str]:
    if shutil.which("nm") is None:
        pytest.skip("no nm: install binutils")
    listing = subprocess.run(
        ["nm", "--dynamic", "--defined-only", library], capture_output=True, text=True, check=True
    ).stdout
    names = [line.split()[-1].split("@")[0] for line in listing.splitlines() if " T " in line]
    return [name for name in names if name.startswith("nccl")]


@pytest.mark.parametrize("version", [4, 5, 6])
def test_nccl_takes_the_plugin_and_tells_it(
    version: int, real_nccl: Path, tmp_path: Path, recorded: Recorded
) -> None:
    assert _through_adaptor(real_nccl, version, tmp_path) == "oncall"
    [path] = tmp_path.glob("rings/*.ring")
    reported = recorded(path)
    [board] = reported.communicators()
    assert (board["identity"], board["rank"], board["size"]) == (0xABC, 1, 4)
    [described] = reported.records(RecordKind.DESCRIBED)
    assert (described["algorithm"], described["protocol"]) == (b"RING", b"LL128")
    assert described["channels"] == 2
    [ended] = reported.records(RecordKind.ENDED)
    assert (ended["gpu_duration_ns"], ended["channels"]) == (3000, 2)
    for kind in (RecordKind.ENTERED, RecordKind.ENQUEUED, RecordKind.STARTED):
        assert reported.records(kind)["operation"].tolist() == [ended["operation"]]


def test_version_seven_is_not_claimed(real_nccl: Path, tmp_path: Path) -> None:
    assert _through_adaptor(real_nccl, 7, tmp_path) == "none"


def _through_adaptor(nccl: Path, version: int, run_dir: Path) -> str:
    if shutil.which("nm") is None:
        pytest.skip("no nm: install binutils")
    done = subprocess.run(
        [
            sys.executable,
            _ADAPTORS,
            nccl / "libnccl.so.2",
            native.hooks_library(),
            str(version),
        ],
        env={**os.environ, "ONCALL_RUN_DIR": str(run_dir)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = done.stdout.strip()
    if found == "unknown":
        pytest.skip("this libnccl has no such adaptor, or does not tell where it is")
    return found
