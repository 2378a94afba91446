"""The versions of PyTorch and NCCL that a process has loaded, by the files in its memory map."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from oncall.core.errors import Unreadable
from oncall.importers.files import open_file

_TORCH = re.compile(r"^(?P<packages>/.*)/torch/lib/libtorch\w*\.so")
_NCCL = re.compile(r"^(?P<packages>/.*)/nvidia/nccl/lib/libnccl\.so")
_NCCL_FILE = re.compile(r"/libnccl\.so\.(\d+\.\d+\.\d+)$")
_VERSION = re.compile(r"__version__ = '([\w.+-]{1,40})'")
_MOST_BYTES = 4 << 20
_MOST_VERSION_BYTES = 4096


def loaded_versions(pid: int, proc: Path = Path("/proc")) -> dict[str, str]:
    """`torch` and `nccl` with their versions, as far as they can be seen."""
    folder = proc / str(pid)
    try:
        with (folder / "maps").open(errors="replace") as file:
            lines = file.read(_MOST_BYTES).splitlines()
    except OSError:
        return {}
    paths = {line.partition("/")[1] + line.partition("/")[2] for line in lines if "/" in line}
    root, found = folder / "root", {}
    for path in sorted(paths):
        if (match := _TORCH.match(path)) and "torch" not in found:
            # Whoever owns the process chose this path: it may be a pipe, or without an end.
            with suppress(OSError, Unreadable):
                with open_file(root / f"{match['packages'][1:]}/torch/version.py") as file:
                    text = file.read(_MOST_VERSION_BYTES).decode(errors="replace")
                if version := _VERSION.search(text):
                    found["torch"] = version[1]
        if match := _NCCL_FILE.search(path):
            found["nccl"] = match[1]
        elif match := _NCCL.match(path):
            with suppress(OSError):
                packages = root / match["packages"][1:]
                for one in packages.glob("nvidia_nccl_cu*.dist-info"):
                    found["nccl"] = one.name.split("-")[1].removesuffix(".dist")
    return found
