"""Where the C parts lie that were built with the package: the hooks, the readers of recordings and
the stand-in for NCCL.

The hooks are there for every architecture that jobs run on, whatever this machine is.
"""

from __future__ import annotations

import platform
from enum import StrEnum
from pathlib import Path

import oncall
from oncall.core.errors import OncallError


class NotBuilt(OncallError):
    """A C part is not installed with this Python package."""


class Architecture(StrEnum):
    """The machines that the hooks are built for."""

    X86_64 = "x86_64"
    AARCH64 = "aarch64"

    @classmethod
    def here(cls) -> Architecture:
        """This machine's. Raises NotBuilt where the hooks are not built for it."""
        machine = platform.machine()
        try:
            return cls({"amd64": "x86_64", "arm64": "aarch64"}.get(machine.lower(), machine))
        except ValueError:
            known = " and ".join(cls)
            raise NotBuilt(f"the hooks are built for {known}, not for {machine}") from None


HOOKS, VERBS, IBVERBS = "liboncall_hooks.so", "liboncall_verbs.so", "ibverbs/libibverbs.so"


def hooks_library(architecture: Architecture | None = None) -> Path:
    """The library that a training job preloads, and that NCCL loads as its profiler plugin."""
    return hooks_folder(architecture) / HOOKS


def verbs_library(architecture: Architecture | None = None) -> Path:
    """The library that a training job preloads to have its RDMA work requests seen."""
    return hooks_folder(architecture) / VERBS


def ibverbs_library(architecture: Architecture | None = None) -> Path:
    """The same in libibverbs' place, for NCCL_IBVERBS_LIB; its folder, for the library path."""
    return hooks_folder(architecture) / IBVERBS


def hooks_folder(architecture: Architecture | None = None) -> Path:
    """The folder of the three libraries; for this machine if none is named. Raises NotBuilt."""
    return _find(f"{architecture or Architecture.here()}/{HOOKS}").parent


def readers_library() -> Path:
    """The library that reads large recordings, of this machine alone. Raises NotBuilt."""
    return _find(f"{Architecture.here()}/liboncall_readers.so")


def standin_folder() -> Path:
    """The folder with the stand-in `libnccl.so.2` and the small training job, `train`."""
    return _find("standin/libnccl.so.2").parent


def _find(name: str) -> Path:
    # An editable install has two folders of the package: the sources, and what was built.
    for folder in oncall.__path__:
        path = Path(folder) / "_native" / name
        if path.exists():
            return path.resolve()
    raise NotBuilt(
        f"{name} was not found: install oncall from a wheel for Linux, or build it "
        "(`pip install .`, in a checkout `make native`)"
    )
