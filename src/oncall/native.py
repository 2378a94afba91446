"""Where the C parts lie that were built with the package: the hooks and the stand-in for NCCL."""

from __future__ import annotations

from pathlib import Path

import oncall
from oncall.errors import OncallError


class NotBuilt(OncallError):
    """A C part is not installed with this Python package."""


def hooks_library() -> Path:
    """The library that a training job preloads, and that NCCL loads as its profiler plugin."""
    return _find("liboncall_hooks.so")


def verbs_library() -> Path:
    """The library that a training job preloads to have its RDMA work requests seen."""
    return _find("liboncall_verbs.so")


def ibverbs_library() -> Path:
    """The same in libibverbs' place, for NCCL_IBVERBS_LIB; its folder, for the library path."""
    return _find("ibverbs/libibverbs.so")


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
        f"{name} is not built: install oncall from a wheel for Linux, or with a C compiler at "
        "hand (`pip install .`, in a checkout `make native`)"
    )
