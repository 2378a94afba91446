"""A stand-in for NVML: GPUs to be set as a test wants, behind the functions of pynvml."""

from __future__ import annotations

import queue
import threading
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from oncall.node.gpu.gpu import Status

WORDS = {
    Status.UNINITIALIZED: "Uninitialized",
    Status.NOT_SUPPORTED: "Not Supported",
    Status.TIMEOUT: "Timeout",
    Status.LIBRARY_NOT_FOUND: "NVML Shared Library Not Found",
    Status.DRIVER_NOT_LOADED: "Driver Not Loaded",
    Status.GPU_IS_LOST: "GPU is lost",
    Status.RESET_REQUIRED: "GPU requires restart",
}


class NVMLError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(WORDS.get(value, f"status {value}"))  # type: ignore[call-overload]
        self.value = value


@dataclass
class StandinGpu:
    """An H100 at work. `failing` is what a function returns instead, by its name without
    `nvmlDevice` and `Get`."""

    bus: int = 0x18
    name: str = "NVIDIA H100 80GB HBM3"
    sm_clock_mhz: int = 1755
    power_mw: int = 612_000
    temp_c: int = 61
    utilisation: int = 97
    throttle_reasons: int = 0x4
    memory_used: int = 70 * 2**30
    pcie: tuple[int, int, int, int] = (5, 5, 16, 16)  # generation, most, width, most
    pcie_replays: int = 0
    ecc: tuple[int, int] = (2, 0)
    remapped: tuple[int, int, int, int] = (0, 1, 0, 0)
    links: list[bool] = field(default_factory=lambda: [True] * 18)
    link_errors: dict[tuple[int, int], int] = field(default_factory=dict)
    pids: list[int] = field(default_factory=lambda: [4711])
    failing: dict[str, int] = field(default_factory=dict)


class NvmlStandin:
    """The driver with its GPUs; a handle is the GPU itself. `hang` is waited for in every call
    that reads a power, which thus can be made to hang."""

    NVMLError = NVMLError

    def __init__(self, *gpus: StandinGpu) -> None:
        self.gpus = list(gpus)
        self.failing: dict[str, int] = {}  # functions that are of no GPU
        self.begun = 0
        self.event_sets = 0
        self.events: queue.Queue[Any] = queue.Queue()
        self.watched: list[StandinGpu] = []
        self.calls = 0
        self.hang = threading.Event()
        self.hang.set()

    def report_xid(self, gpu: StandinGpu, xid: int) -> None:
        event = SimpleNamespace(device=gpu, eventType=0x8, eventData=xid)
        if gpu in self.watched:
            self.events.put(event)

    def _check(self, function: str, gpu: StandinGpu | None = None) -> None:
        self.calls += 1
        failing = self.failing if gpu is None else gpu.failing | self.failing
        value = failing.get(function) or failing.get("everything")
        if value is None and not self.begun:
            value = Status.UNINITIALIZED
        if value is not None:
            raise NVMLError(value)

    # ------------------------------------------------------------------- pynvml's names

    def nvmlInit(self) -> None:
        self.begun += 1
        try:
            self._check("Init")
        except NVMLError:
            self.begun -= 1
            raise

    def nvmlShutdown(self) -> None:
        self._check("Shutdown")
        self.begun -= 1

    def nvmlSystemGetDriverVersion(self) -> str:
        self._check("DriverVersion")
        return "570.158.01"

    def nvmlDeviceGetCount(self) -> int:
        self._check("Count")
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> StandinGpu:
        self._check("HandleByIndex", self.gpus[index])
        return self.gpus[index]

    def nvmlDeviceGetIndex(self, handle: StandinGpu) -> int:
        self._check("Index", handle)
        return next(n for n, gpu in enumerate(self.gpus) if gpu is handle)

    def nvmlDeviceGetPciInfo(self, handle: StandinGpu) -> Any:
        self._check("PciInfo", handle)
        return SimpleNamespace(busId=f"00000000:{handle.bus:02X}:00.0".encode())

    def nvmlDeviceGetName(self, handle: StandinGpu) -> str:
        self._check("Name", handle)
        return handle.name

    def nvmlDeviceGetSerial(self, handle: StandinGpu) -> str:
        self._check("Serial", handle)
        return f"16509{handle.bus:08d}"

    def nvmlDeviceGetClockInfo(self, handle: StandinGpu, type: int) -> int:  # noqa: A002
        self._check("ClockInfo", handle)
        return {1: handle.sm_clock_mhz}[type]

    def nvmlDeviceGetMaxClockInfo(self, handle: StandinGpu, type: int) -> int:  # noqa: A002
        self._check("MaxClockInfo", handle)
        return {1: 1980}[type]

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: StandinGpu) -> int:
        self._check("CurrentClocksEventReasons", handle)
        return handle.throttle_reasons

    def nvmlDeviceGetPowerUsage(self, handle: StandinGpu) -> int:
        self.hang.wait()
        self._check("PowerUsage", handle)
        return handle.power_mw

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: StandinGpu) -> int:
        self._check("EnforcedPowerLimit", handle)
        return 700_000

    def nvmlDeviceGetTemperature(self, handle: StandinGpu, sensor: int) -> int:
        self._check("Temperature", handle)
        return {0: handle.temp_c}[sensor]

    def nvmlDeviceGetUtilizationRates(self, handle: StandinGpu) -> Any:
        self._check("UtilizationRates", handle)
        return SimpleNamespace(gpu=handle.utilisation, memory=40)

    def nvmlDeviceGetMemoryInfo(self, handle: StandinGpu, version: int | None = None) -> Any:
        assert version is None
        self._check("MemoryInfo", handle)
        return SimpleNamespace(total=80 * 2**30, used=handle.memory_used)

    def nvmlDeviceGetCurrPcieLinkGeneration(self, handle: StandinGpu) -> int:
        self._check("CurrPcieLinkGeneration", handle)
        return handle.pcie[0]

    def nvmlDeviceGetMaxPcieLinkGeneration(self, handle: StandinGpu) -> int:
        self._check("MaxPcieLinkGeneration", handle)
        return handle.pcie[1]

    def nvmlDeviceGetCurrPcieLinkWidth(self, handle: StandinGpu) -> int:
        self._check("CurrPcieLinkWidth", handle)
        return handle.pcie[2]

    def nvmlDeviceGetMaxPcieLinkWidth(self, handle: StandinGpu) -> int:
        self._check("MaxPcieLinkWidth", handle)
        return handle.pcie[3]

    def nvmlDeviceGetPcieReplayCounter(self, handle: StandinGpu) -> int:
        self._check("PcieReplayCounter", handle)
        return handle.pcie_replays

    def nvmlDeviceGetTotalEccErrors(
        self, handle: StandinGpu, errorType: int, counterType: int
    ) -> int:
        self._check("TotalEccErrors", handle)
        assert counterType == 0
        return handle.ecc[errorType]

    def nvmlDeviceGetRemappedRows(self, device: StandinGpu) -> tuple[int, int, int, int]:
        self._check("RemappedRows", device)
        return device.remapped

    def nvmlDeviceGetNvLinkState(self, device: StandinGpu, link: int) -> int:
        self._check("NvLinkState", device)
        if link >= len(device.links):
            raise NVMLError(Status.INVALID_ARGUMENT)
        return int(device.links[link])

    def nvmlDeviceGetNvLinkErrorCounter(self, device: StandinGpu, link: int, counter: int) -> int:
        self._check("NvLinkErrorCounter", device)
        if counter == 2:  # as Hopper, which counts no flits
            raise NVMLError(Status.NOT_SUPPORTED)
        if not device.links[link]:
            raise NVMLError(Status.NOT_SUPPORTED)
        return device.link_errors.get((link, counter), 0)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: StandinGpu) -> list[Any]:
        self._check("ComputeRunningProcesses", handle)
        return [SimpleNamespace(pid=pid) for pid in handle.pids]

    def nvmlEventSetCreate(self) -> queue.Queue[Any]:
        self._check("EventSetCreate")
        self.event_sets += 1
        return self.events

    def nvmlEventSetFree(self, eventSet: queue.Queue[Any]) -> None:
        assert eventSet is self.events
        self.event_sets -= 1

    def nvmlDeviceRegisterEvents(
        self, handle: StandinGpu, eventTypes: int, eventSet: queue.Queue[Any]
    ) -> None:
        assert eventSet is self.events
        assert eventTypes == 0x8
        self._check("RegisterEvents", handle)
        self.watched.append(handle)

    def nvmlEventSetWait_v2(self, eventSet: queue.Queue[Any], timeoutms: int) -> Any:
        self._check("EventSetWait")
        try:
            return eventSet.get(timeout=min(timeoutms, 20) / 1000)  # NVML may return early too
        except queue.Empty:
            raise NVMLError(Status.TIMEOUT) from None
