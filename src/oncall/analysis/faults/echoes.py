"""Errors that only follow from another process's death or from a collective that timed out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# Types that nothing but an echo has.
_TYPES = {
    *("DistBackendError", "ChildFailedError", "DistNetworkError", "ConnectionResetError"),
    *("BrokenPipeError", "EOFError", "SignalException", "KeyboardInterrupt", "ConnectionError"),
    *("RayActorError", "ActorDiedError", "RayTaskError", "ProcessExitedException", "DistError"),
    *("WorkerCrashedError", "ConnectionRefusedError", "CancelledError", "CalledProcessError"),
    *(
        "RendezvousConnectionError",
        "RendezvousTimeoutError",
        "SystemExit",
        "ProcessRaisedException",
        "CheckpointException",
    ),
    *("RendezvousClosedError", "ConnectionAbortedError", "DistStoreError", "TimeoutExpired"),
    *("TimeoutError", "GetTimeoutError", "EngineDeadError", "AsyncEngineDeadError"),
}
_SAID = re.compile(
    r"NCCL|HCCL|Hccl[A-Z]|hccl api failed|"
    r"ncclUnhandled|ncclSystemError|ncclInternalError|Watchdog caught|ProcessGroup|"
    r"[Cc]onnection (?:reset|closed|refused)|Socket [Tt]imeout|Broken pipe|remote peer|"
    r"Pin memory thread exited|store->get|TCPStore|Timed out waiting|[Gg]loo|Detected mismatch|"
    r"process \d+ terminated|SIGTERM|SIGABRT|Aborted|monitoredBarrier|rendezvous|"
    r"[Ee]ngine ?[Cc]ore (?:initialization failed|encountered an issue)|"
    r"exited unexpectedly|closing signal|"
    r"^(?:DEADLINE_EXCEEDED|UNAVAILABLE|ABORTED|CANCELLED): |[Cc]oordination ?[Ss]ervice"
)
# Errors that are named after NCCL and are a process's own all the same.
_OWN = re.compile(r"ncclInvalidUsage|Duplicate GPU detected|invalid usage|NCCL library not found")
ENDED_BY_OTHERS = {"-6", "-15", "134", "143", "N/A"}


def is_echo(row: Mapping[str, Any]) -> bool:
    """Whether an exception is one that a process raises because another failed or did not come."""
    text = row["text"] or ""
    if _OWN.search(text):
        return False
    return row["code"] in _TYPES or bool(_SAID.search(text))
