"""The versions a process has loaded, and paths that its owner made up."""

from __future__ import annotations

import os
from pathlib import Path

from oncall.node.processes.versions import loaded_versions


def process(proc: Path) -> Path:
    """A process that maps PyTorch's library. Gives the path of its version."""
    folder = proc / "7"
    version = folder / "root" / "packages" / "torch" / "version.py"
    version.parent.mkdir(parents=True)
    (folder / "maps").write_text("7f00-7f01 r-xp 0 0:0 0 /packages/torch/lib/libtorch_cuda.so\n")
    return version


def test_the_version_of_pytorch(tmp_path: Path) -> None:
    process(tmp_path).write_text("__version__ = '2.4.0+cu121'\n")
    assert loaded_versions(7, tmp_path) == {"torch": "2.4.0+cu121"}


def test_a_pipe_in_its_place_blocks_nothing(tmp_path: Path) -> None:
    os.mkfifo(process(tmp_path))
    assert loaded_versions(7, tmp_path) == {}
