"""Xids as NVML's event set reports them. A thread of its own waits for them: if several come
between two polls, the driver may report only the last, so they are not polled.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from oncall.node.common.source import read_clock
from oncall.node.gpu.gpu import XID_EVENTS, Gpu, Nvml, Status, status

_WAIT_MS = 500  # how long a stop may take
_AFTER_FAILURE_S = 1.0


@dataclass(frozen=True)
class XidEvent:
    """An Xid, the GPU that had it (None where NVML cannot say), and when, Unix time."""

    xid: int
    gpu: int | None
    at_ns: int


class XidWatch:
    """Waits for Xids of `gpus` from now on."""

    def __init__(self, nvml: Nvml, gpus: Sequence[Gpu]) -> None:
        """Raises NVMLError if NVML has no events here. `unwatched` are GPUs that have none."""
        self._nvml = nvml
        self._events = nvml.nvmlEventSetCreate()
        self.unwatched = [gpu for gpu in gpus if not self._register(gpu)]
        self._seen: queue.SimpleQueue[XidEvent] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="xid events", daemon=True)
        self._thread.start()

    def take(self) -> list[XidEvent]:
        """The Xids since the last call."""
        taken = []
        while not self._seen.empty():
            taken.append(self._seen.get())
        return taken

    def close(self, patience_s: float) -> bool:
        """Stop waiting; whether the thread has ended, so that NVML may be shut down."""
        self._stopping.set()
        self._thread.join(patience_s)
        if self._thread.is_alive():
            return False
        with suppress(self._nvml.NVMLError):  # the driver may be gone, and the set with it
            self._nvml.nvmlEventSetFree(self._events)
        return True

    def _register(self, gpu: Gpu) -> bool:
        try:
            self._nvml.nvmlDeviceRegisterEvents(gpu.handle, XID_EVENTS, self._events)
        except self._nvml.NVMLError:
            return False
        return True

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                event = self._nvml.nvmlEventSetWait_v2(self._events, _WAIT_MS)
            except self._nvml.NVMLError as error:
                if status(error) != Status.TIMEOUT:
                    self._stopping.wait(_AFTER_FAILURE_S)  # a GPU that is lost fails at once
                continue
            if event.eventType & XID_EVENTS:
                at_ns = read_clock().realtime_ns
                self._seen.put(XidEvent(int(event.eventData), self._index(event.device), at_ns))

    def _index(self, handle: object) -> int | None:
        try:
            return self._nvml.nvmlDeviceGetIndex(handle)
        except self._nvml.NVMLError:
            return None
