"""The poller over its stand-in for DOCA, and programs that play a poller."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # dpa_frames is shared by the tests here

_DPA = Path(__file__).parents[2] / "dpa"
_SOURCES = ("poller.c", "standin/doca_host.c", "pcc_device.c", "measurement.c", "polling.c")


@pytest.fixture(scope="session")
def poller(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """dpa/poller.c, with the NIC's program and a stand-in for DOCA in the same process, every
    access watched."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler: `make test` installs one")
    program = tmp_path_factory.mktemp("poller") / "oncall-dpa-poller"
    sources = [_DPA / name for name in _SOURCES]
    watched = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    flags = ("-std=gnu11", "-O1", "-g", *watched, f"-I{_DPA}/doca_shim", f"-I{_DPA}")
    subprocess.run([compiler, *flags, *sources, "-o", program], check=True)
    return program


@pytest.fixture
def playing(tmp_path: Path) -> Callable[..., Path]:
    """A program that plays the poller: Python lines, each with `write(bytes)` at hand."""

    def make(*lines: str) -> Path:
        path = tmp_path / "poller.py"
        head = (f"#!{sys.executable} -IS", "import os, signal, sys, time")
        write = "write = lambda data: os.write(1, data)"
        path.write_text("\n".join((*head, write, *lines)))
        path.chmod(0o755)
        return path

    return make
