"""One GPU as NVML reports it. Each value is read by itself, so a value that a model or driver does
not report costs no other.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum
from typing import Any, Protocol, TypeAlias, cast

from oncall.evidence.codes.pci_addresses import pci_address
from oncall.evidence.schema import BY_NAME
from oncall.node.host.pci import PciPlace

# The part of NVML that is used, by pynvml's own names, and what its errors mean to a collector.

Handle: TypeAlias = Any  # of a GPU, or of a set of events


class Status(IntEnum):
    """The return values of NVML (nvml.h) that are distinguished here."""

    UNINITIALIZED = 1
    INVALID_ARGUMENT = 2
    NOT_SUPPORTED = 3
    NO_PERMISSION = 4
    DRIVER_NOT_LOADED = 9
    TIMEOUT = 10
    LIBRARY_NOT_FOUND = 12
    FUNCTION_NOT_FOUND = 13
    GPU_IS_LOST = 15
    RESET_REQUIRED = 16


ABSENT = (Status.LIBRARY_NOT_FOUND, Status.DRIVER_NOT_LOADED)  # no NVIDIA driver at all
# The driver was unloaded under us; NVML must be begun anew.
OVER = (Status.UNINITIALIZED, Status.DRIVER_NOT_LOADED)
# This GPU, this driver or this user never gets an answer: it is not asked again.
NEVER = (
    Status.INVALID_ARGUMENT,
    Status.NOT_SUPPORTED,
    Status.NO_PERMISSION,
    Status.FUNCTION_NOT_FOUND,
)
# The GPU answers nothing any more; the code of the event that tells it.
GONE: dict[int, str] = {
    Status.GPU_IS_LOST: "gpu_lost",
    Status.RESET_REQUIRED: "gpu_reset_required",
}

SM_CLOCK = 1
CORE_SENSOR = 0
CORRECTED, UNCORRECTED = 0, 1
VOLATILE = 0  # since the driver was loaded
XID_EVENTS = 0x8
MOST_NVLINKS = 36
NVLINK_ERRORS = (0, 1, 2, 3)  # replays, recoveries, CRC errors of flits, of data


class Nvml(Protocol):
    """pynvml, or a stand-in. Every call may raise NVMLError, whose `value` is a Status or
    another number."""

    NVMLError: type[Exception]

    def nvmlInit(self) -> None: ...
    def nvmlShutdown(self) -> None: ...
    def nvmlSystemGetDriverVersion(self) -> str: ...
    def nvmlDeviceGetCount(self) -> int: ...
    def nvmlDeviceGetHandleByIndex(self, index: int, /) -> Handle: ...
    def nvmlDeviceGetIndex(self, handle: Handle, /) -> int: ...
    def nvmlDeviceGetPciInfo(self, handle: Handle, /) -> Any: ...
    def nvmlDeviceGetName(self, handle: Handle, /) -> str: ...
    def nvmlDeviceGetSerial(self, handle: Handle, /) -> str: ...
    def nvmlDeviceGetClockInfo(self, handle: Handle, kind: int, /) -> int: ...
    def nvmlDeviceGetMaxClockInfo(self, handle: Handle, kind: int, /) -> int: ...
    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: Handle, /) -> int: ...
    def nvmlDeviceGetPowerUsage(self, handle: Handle, /) -> int: ...
    def nvmlDeviceGetEnforcedPowerLimit(self, handle: Handle, /) -> int: ...
    def nvmlDeviceGetTemperature(self, handle: Handle, sensor: int, /) -> int: ...
    def nvmlDeviceGetUtilizationRates(self, handle: Handle, /) -> Any: ...
    def nvmlDeviceGetMemoryInfo(self, handle: Handle, /) -> Any: ...
    def nvmlDeviceGetCurrPcieLinkGeneration(self, handle: Handle, /) -> int: ...
    def nvmlDeviceGetMaxPcieLinkGeneration(self, handle: Handle, /) -> int: ...
    def nvmlDeviceGetCurrPcieLinkWidth(self, handle: Handle, /) -> int: ...
    def nvmlDeviceGetMaxPcieLinkWidth(self, handle: Handle, /) -> int: ...
    def nvmlDeviceGetPcieReplayCounter(self, handle: Handle, /) -> int: ...
    def nvmlDeviceGetTotalEccErrors(self, handle: Handle, kind: int, since: int, /) -> int: ...
    def nvmlDeviceGetRemappedRows(self, handle: Handle, /) -> tuple[int, int, int, int]: ...
    def nvmlDeviceGetNvLinkState(self, handle: Handle, link: int, /) -> int: ...
    def nvmlDeviceGetNvLinkErrorCounter(self, handle: Handle, link: int, kind: int, /) -> int: ...
    def nvmlDeviceGetComputeRunningProcesses(self, handle: Handle, /) -> list[Any]: ...
    def nvmlEventSetCreate(self) -> Handle: ...
    def nvmlEventSetFree(self, events: Handle, /) -> None: ...
    def nvmlDeviceRegisterEvents(self, handle: Handle, kinds: int, events: Handle, /) -> None: ...
    def nvmlEventSetWait_v2(self, events: Handle, timeout_ms: int, /) -> Any: ...


def load_nvml() -> Nvml:
    """NVIDIA's own binding, not yet begun. Raises ImportError if it is not installed."""
    import pynvml  # only where GPUs are collected: it is 7,000 lines

    return cast(Nvml, pynvml)


def status(error: Exception) -> int:
    """The number of an NVMLError."""
    return int(getattr(error, "value", -1))


Reading = Callable[[Nvml, Handle], Any]

_READINGS: dict[tuple[str, ...], Reading] = {
    ("sm_clock_mhz",): lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, SM_CLOCK),
    ("sm_clock_max_mhz",): lambda nvml, gpu: nvml.nvmlDeviceGetMaxClockInfo(gpu, SM_CLOCK),
    ("throttle_reasons",): lambda nvml, gpu: nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu),
    ("power_w",): lambda nvml, gpu: nvml.nvmlDeviceGetPowerUsage(gpu) / 1000,
    ("power_limit_w",): lambda nvml, gpu: nvml.nvmlDeviceGetEnforcedPowerLimit(gpu) / 1000,
    ("temp_c",): lambda nvml, gpu: nvml.nvmlDeviceGetTemperature(gpu, CORE_SENSOR),
    ("utilisation",): lambda nvml, gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu / 100,
    ("memory_used_bytes", "memory_bytes"): lambda nvml, gpu: _memory(nvml, gpu),
    ("pcie_gen",): lambda nvml, gpu: nvml.nvmlDeviceGetCurrPcieLinkGeneration(gpu),
    ("pcie_gen_max",): lambda nvml, gpu: nvml.nvmlDeviceGetMaxPcieLinkGeneration(gpu),
    ("pcie_width",): lambda nvml, gpu: nvml.nvmlDeviceGetCurrPcieLinkWidth(gpu),
    ("pcie_width_max",): lambda nvml, gpu: nvml.nvmlDeviceGetMaxPcieLinkWidth(gpu),
    ("pcie_replays",): lambda nvml, gpu: nvml.nvmlDeviceGetPcieReplayCounter(gpu),
    ("ecc_corrected",): lambda nvml, gpu: nvml.nvmlDeviceGetTotalEccErrors(
        gpu, CORRECTED, VOLATILE
    ),
    ("ecc_uncorrected",): lambda nvml, gpu: nvml.nvmlDeviceGetTotalEccErrors(
        gpu, UNCORRECTED, VOLATILE
    ),
    ("remapped_rows", "remap_failed"): lambda nvml, gpu: _remapped(nvml, gpu),
    ("processes",): lambda nvml, gpu: len(nvml.nvmlDeviceGetComputeRunningProcesses(gpu)),
}
_NVLINKS = ("nvlinks", "nvlinks_up", "nvlink_errors")
COLUMNS = (*(column for columns in _READINGS for column in columns), *_NVLINKS, "xid")

# What a column holds at most: a value beyond is NVML's "not available" or garbage.
_MOST = {"INTEGER": 2**31 - 1, "BIGINT": 2**63 - 1, "UBIGINT": 2**64 - 1}
_TYPES = {column.name: column.type for column in BY_NAME["gpus"].columns}


class DriverGone(Exception):
    """The driver was unloaded: NVML must be initialised again."""


class Gpu:
    """A GPU and what is known of it so far.

    `gone` is the code that says why it does not answer, None while it answers; `unreported` are the
    columns that it will never report.
    """

    def __init__(self, nvml: Nvml, index: int) -> None:
        """Raises NVMLError if it cannot be opened."""
        self._nvml = nvml
        self.index = index
        self.handle: Handle = nvml.nvmlDeviceGetHandleByIndex(index)
        self.pci_bus = pci_address(_text(nvml.nvmlDeviceGetPciInfo(self.handle).busId))
        self.model = _text(nvml.nvmlDeviceGetName(self.handle))
        self.serial: str | None = None
        with suppress(nvml.NVMLError):  # only boards for data centres have one
            self.serial = _text(nvml.nvmlDeviceGetSerial(self.handle))
        self.place = PciPlace()
        self.gone: str | None = None
        self.unreported: set[str] = set()
        self.xid: int | None = None  # the last one seen
        self.failures: tuple[str, ...] = ()  # of the last reading
        self._link_errors: dict[tuple[int, int], int] = {}  # by link and kind
        self._unreported_errors: set[tuple[int, int]] = set()
        self._links = [link for link in range(MOST_NVLINKS) if self._has_link(link)]
        if not self._links:
            self.unreported.update(_NVLINKS)

    def __str__(self) -> str:
        return f"GPU {self.index} ({self.pci_bus or 'no PCI address'})"

    def read(self) -> dict[str, Any]:
        """The columns of `gpus` that it reports now; none if it is gone. Raises DriverGone."""
        self.gone, self.failures = None, ()
        read: dict[str, Any] = {}
        for columns, reading in (*_READINGS.items(), (_NVLINKS, self._nvlinks)):
            if self.unreported.issuperset(columns):
                continue
            try:
                values = reading(self._nvml, self.handle)
            except self._nvml.NVMLError as error:
                self._failed(columns, error)
                if self.gone:
                    return {}
                continue
            each = values if isinstance(values, tuple) else (values,)
            pairs = zip(columns, each, strict=True)
            read |= {name: _plausible(name, value) for name, value in pairs}
        return read | {"xid": self.xid}

    def _failed(self, columns: tuple[str, ...], error: Exception) -> None:
        number = status(error)
        if number in OVER:
            raise DriverGone(str(error)) from error
        if number in NEVER:
            self.unreported.update(columns)
        elif number in GONE:
            self.gone, self.failures = GONE[number], (f"{self}: {error}",)
        else:
            self.failures += (f"{self}: {columns[0]}: {error}",)

    # ----------------------------------------------------------------- its NVLinks

    def _has_link(self, link: int) -> bool:
        try:
            self._nvml.nvmlDeviceGetNvLinkState(self.handle, link)
        except self._nvml.NVMLError:
            return False
        return True

    def _nvlinks(self, nvml: Nvml, handle: Handle) -> tuple[int, int, int | None]:
        """How many NVLinks there are, how many are up, and the sum of their errors. Links that are
        down count with their last value: without them the sum would look like a reset."""
        up = [link for link in self._links if nvml.nvmlDeviceGetNvLinkState(handle, link)]
        asked = [(link, kind) for link in up for kind in NVLINK_ERRORS]
        for link, kind in asked:
            if (link, kind) in self._unreported_errors:
                continue
            try:
                count = nvml.nvmlDeviceGetNvLinkErrorCounter(handle, link, kind)
                self._link_errors[link, kind] = count
            except nvml.NVMLError as error:
                if status(error) not in NEVER:
                    raise
                self._unreported_errors.add((link, kind))
        errors = self._link_errors.values()
        return len(self._links), len(up), sum(errors) if errors else None


def _memory(nvml: Nvml, gpu: Handle) -> tuple[int, int]:
    memory = nvml.nvmlDeviceGetMemoryInfo(gpu)
    return memory.used, memory.total


def _remapped(nvml: Nvml, gpu: Handle) -> tuple[int, bool]:
    _, uncorrectable, _, failed = nvml.nvmlDeviceGetRemappedRows(gpu)
    return uncorrectable, bool(failed)


def _plausible(column: str, value: Any) -> Any:
    return None if isinstance(value, int) and value > _MOST.get(_TYPES[column], value) else value


def _text(answer: bytes | str) -> str:
    return answer.decode("utf-8", "replace") if isinstance(answer, bytes) else answer
