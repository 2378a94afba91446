"""The hooks as nodes of aarch64 load them: their C tests and their loading, under qemu."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oncall.native import Architecture, hooks_library, verbs_library
from oncall.node.verbs.verbs_file import VerbsReader

QEMU, LIBC = "qemu-aarch64", Path("/usr/aarch64-linux-gnu")  # Debian's libc6-arm64-cross
EMULATOR = (QEMU, "-L", str(LIBC))
PROJECT = Path(__file__).parents[2]


def why_not() -> str:
    if Architecture.here() is Architecture.AARCH64:
        return "this machine is one: `make check` runs these tests as they are"
    missing = [name for name in (QEMU, "cmake") if shutil.which(name, path=_PATH) is None]
    missing += [] if LIBC.is_dir() else [str(LIBC)]
    if missing:
        return f"no {', '.join(missing)}: `make elsewhere-packages` installs it"
    return ""


_PATH = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(why_not()), reason=why_not())]


@pytest.fixture(scope="module")
def build() -> Path:
    """The hooks and their C tests, built for aarch64 in build/aarch64."""
    cmake, folder = shutil.which("cmake", path=_PATH), PROJECT / "build/aarch64"
    settings = ("-DONCALL_ARCHITECTURE=aarch64", "-DONCALL_TESTS=ON")
    python = f"-DPython_EXECUTABLE={sys.executable}"
    subprocess.run([cmake, "-S", PROJECT, "-B", folder, *settings, python], check=True)
    subprocess.run([cmake, "--build", folder, "--parallel", "2"], check=True)
    return folder


@pytest.mark.timeout(900)
def test_the_c_tests_hold(build: Path) -> None:
    ctest = shutil.which("ctest", path=_PATH)
    command = [ctest, "--test-dir", build, "--output-on-failure", "--timeout", "120"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    passed = re.search(r"100% tests passed.* out of (\d+)", done.stdout)
    assert passed and int(passed[1]) >= len([*PROJECT.glob("tests/hooks/test_*.c")]) - 1


@pytest.mark.parametrize("way", ["linked", "dlsym", "dlvsym"])
def test_both_are_preloaded(
    build: Path, verbs_program_by: Callable[[Path], Path], posting: Callable[..., Any], way: str
) -> None:
    libraries = (hooks_library(Architecture.AARCH64), verbs_library(Architecture.AARCH64))
    process = posting(
        way,
        program=verbs_program_by(build / "zig-cc"),
        emulator=EMULATOR,
        LD_PRELOAD=":".join(map(str, libraries)),
    )
    process.tell("pair 7 8 64", "post 7 3 100", "poll")
    assert process.tell("next malloc", "next no_such_function") == [1, 0]
    with VerbsReader.open(process.file, consume=False) as reader:
        rows = reader.queue_pairs().rows
    assert [(int(row["posted"]), int(row["completed"])) for row in rows] == [(3, 3)]
    assert process.leave() == ""  # the loader says nothing
