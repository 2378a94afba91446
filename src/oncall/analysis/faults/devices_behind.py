"""What kinds of device can have brought about what a log states as the cause of a failure.

No link and no GPU makes an index leave its range: an error that is a program's own stands beside
a fault that its host reports, and does not follow from it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

_GPU: Final = ("gpu", "nvlink", "fabric", "cpu", "kernel")
_ANY: Final = (*_GPU, "nic", "pcie", "memory", "limit", "process", "storage", "host")

_OF_CAUSE: Final[Mapping[str, tuple[str, ...]]] = {
    "xid": _GPU,
    "ecc": ("gpu",),
    "gpu_error": _GPU,
    "nvls": _GPU,
    "fabric_manager": _GPU,
    "oom_host": ("process",),
    "data_loader": ("storage", "memory", "cpu", "process"),
    "link_down": ("nic",),
    **dict.fromkeys(("ib_error", "init_hang", "node_failed", "terminated"), _ANY),
}

_CRASH = r"^crash:|[Ss]egmentation fault|[Bb]us error|SIG(?:SEGV|BUS|ILL)"
_ON_GPU = r"CUDA|NVML|\bGPU|^(?:busy|other):"
_DAMAGED = r"[Cc]orrupt|[Cc]hecksum"
# By the words of an error, its type first.
_OF_ERROR: Final = tuple(
    (part, re.compile(words))
    for part, words in (
        ("gpu", rf"{_CRASH}|{_ON_GPU}|CUBLAS|CUDNN|CUSOLVER|HIP|HSA|Accelerator|DEVICE_LOST"),
        ("nvlink", _ON_GPU),
        ("fabric", rf"{_ON_GPU}|NVLS|[Ff]abric"),
        ("nic", r"[Nn]etwork|[Ss]ocket|[Cc]onnect|[Uu]nreachable|RDMA|UCX|OFI|[Ii]bv"),
        ("storage", r"^OSError|I/O error|Input/output|[Ss]tale file|[Bb]us error|[Tt]imed? ?out"),
        ("memory", rf"{_CRASH}|{_DAMAGED}"),
        ("cpu", rf"{_CRASH}|{_DAMAGED}|[Tt]imed? ?out"),
        ("kernel", rf"{_CRASH}|{_ON_GPU}|[Tt]imed? ?out"),
        ("limit", r"^OSError|[Tt]oo many open files"),
        ("process", rf"{_CRASH}|[Kk]illed|[Mm]emory|DataLoaderWorker"),
    )
)
# Errors that only show that another process is gone, and exit codes, which say nothing of why.
_UNSAID: Final = ("echo", "warning", "exit")


def devices_behind(cause: Mapping[str, Any]) -> list[str]:
    """The kinds of device, as in the event catalogue; none where the program did it itself."""
    if cause["cause"] != "error":
        return list(_OF_CAUSE.get(cause["cause"], ()))
    if cause["reason"] in _UNSAID:
        return list(_ANY)
    said = f"{cause['reason']}: {cause['text'] or ''}"
    return [part for part, words in _OF_ERROR if words.search(said)]
