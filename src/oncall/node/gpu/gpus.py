"""Source `gpus`: NVIDIA's GPUs by NVML, their places, and the Xids they report.

A call that hangs in the driver holds up this source only: it has a thread of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from oncall.core.units import NS_PER_S
from oncall.node.common.declaration import Polled, Surroundings, source
from oncall.node.common.own_thread import OwnThread
from oncall.node.common.rate_limit import RateLimits
from oncall.node.common.source import Collected, Instant, Source
from oncall.node.gpu.gpu import ABSENT, COLUMNS, DriverGone, Gpu, Nvml, load_nvml, status
from oncall.node.gpu.xid_events import XidWatch
from oncall.node.host.pci import nvidia_gpus, pci_place
from oncall.node.store.batch import Batch, of_rows

_TRY_AGAIN_NS = 60 * NS_PER_S  # a driver may be loaded later
_PATIENCE_S = 2.0
_XIDS_A_MINUTE = 10  # of one code and GPU
_GPUS = ("node", "gpu", "at_ns", *COLUMNS)
_DEVICES = (
    *("node", "kind", "device", "at_ns", "pci_bus", "pcie_port", "pcie_path", "numa_node"),
    *("model", "firmware", "serial"),
)
_EVENTS = ("node", "at_ns", "source", "code", "device", "text")
_Event = tuple[str, int, str, str, str | None, str]


@dataclass
class _Session:
    """NVML from its beginning to its end, with the GPUs that could be opened."""

    nvml: Nvml
    driver: str | None
    gpus: list[Gpu]
    problems: tuple[str, ...]
    xids: XidWatch | None = None
    notes: tuple[str, ...] = ()


class GpuSource:
    """One row per GPU and reading. A lost GPU has a row without values, an event, and a problem for
    as long as it is lost."""

    name = "gpus"

    def __init__(
        self, root: Path, node: str, every_ns: int, load: Callable[[], Nvml] = load_nvml
    ) -> None:
        self.every_ns = every_ns
        self._root = root
        self._node = node
        self._load = load
        self._session: _Session | None = None
        self._try_at_ns = 0
        self._why_not = Collected()  # as long as there is no session
        self._limits = RateLimits(_XIDS_A_MINUTE / 60, _XIDS_A_MINUTE)
        self._dropped = 0

    def collect(self, now: Instant) -> Collected:
        batches: list[Batch] = []
        if self._session is None and now.monotonic_ns >= self._try_at_ns:
            self._try_at_ns = now.monotonic_ns + _TRY_AGAIN_NS
            self._session, self._why_not = self._open()
            batches += self.current_state(now)
        if self._session is None:
            return self._why_not
        try:
            return self._read(self._session, now, batches)
        except DriverGone as error:
            self.close()
            problem = f"GPUs can no longer be read: NVML: {error}"
            self._why_not = Collected(dropped=self._dropped, problems=(problem,))
            return self._why_not

    def current_state(self, now: Instant) -> Sequence[Batch]:
        """Which GPUs there are, and where."""
        if self._session is None:
            return []
        rows = [
            (
                *(self._node, "gpu", str(gpu.index), now.realtime_ns, gpu.pci_bus),
                *(gpu.place.port, gpu.place.path or None, gpu.place.numa_node),
                *(gpu.model, self._session.driver, gpu.serial),
            )
            for gpu in self._session.gpus
        ]
        return [of_rows("devices", _DEVICES, rows)] if rows else []

    def close(self) -> None:
        if self._session is None:
            return
        session, self._session = self._session, None
        # NVML must not be shut down under a thread that is in it.
        if session.xids is None or session.xids.close(_PATIENCE_S):
            with suppress(session.nvml.NVMLError):  # the driver may be gone
                session.nvml.nvmlShutdown()

    # --------------------------------------------------------------------- opening

    def _open(self) -> tuple[_Session | None, Collected]:
        """Begin NVML; without it, why."""
        try:
            nvml = self._load()
        except ImportError:
            return None, self._absent("the Python package nvidia-ml-py is not installed")
        try:
            nvml.nvmlInit()
            session = self._begin(nvml)
        except nvml.NVMLError as error:
            with suppress(nvml.NVMLError):
                nvml.nvmlShutdown()
            if status(error) in ABSENT:
                return None, self._absent(str(error))
            return None, Collected(problems=(f"no GPUs: NVML: {error}",))
        return session, Collected()

    def _absent(self, why: str) -> Collected:
        """No driver. That is a problem only if there are GPUs that need one."""
        if on_bus := nvidia_gpus(self._root):
            problem = f"{len(on_bus)} NVIDIA GPUs on the PCI bus ({on_bus[0]}) and no NVML: {why}"
            return Collected(problems=(problem,))
        return Collected(notes=(f"no GPUs: {why}",))

    def _begin(self, nvml: Nvml) -> _Session:
        gpus, problems = [], []
        for index in range(nvml.nvmlDeviceGetCount()):
            try:
                gpus.append(Gpu(nvml, index))
            except nvml.NVMLError as error:
                problems.append(f"GPU {index} cannot be opened: {error}")
        for gpu in gpus:
            if gpu.pci_bus:
                gpu.place = pci_place(self._root, gpu.pci_bus)
        notes = () if gpus or problems else ("no GPUs: NVML lists none",)
        session = _Session(nvml, _driver(nvml), gpus, tuple(problems), notes=notes)
        try:
            session.xids = XidWatch(nvml, gpus) if gpus else None
        except nvml.NVMLError as error:
            session.notes = (f"no Xid events from NVML: {error}",)
        return session

    # --------------------------------------------------------------------- reading

    def _read(self, session: _Session, now: Instant, batches: list[Batch]) -> Collected:
        events = list(self._xids(session))
        rows: list[tuple[object, ...]] = []
        failures: list[str] = []
        for gpu in session.gpus:
            before = gpu.gone
            values = gpu.read()
            if gpu.gone and gpu.gone != before:
                (text,) = gpu.failures
                event = (self._node, now.realtime_ns, "nvml", gpu.gone, gpu.pci_bus, text)
                events.append(event)
            rows.append((self._node, gpu.index, now.realtime_ns, *map(values.get, COLUMNS)))
            failures += gpu.failures
        if rows:
            batches.append(of_rows("gpus", _GPUS, rows))
        if events:
            batches.append(of_rows("host_events", _EVENTS, events))
        return Collected(
            batches,
            self._dropped,
            (*session.problems, *failures),
            notes=(*session.notes, *_unreported(session)),
        )

    def _xids(self, session: _Session) -> Iterator[_Event]:
        """Events of the Xids since the last reading; a flood of one is cut and counted."""
        by_index = {gpu.index: gpu for gpu in session.gpus}
        for seen in session.xids.take() if session.xids else ():
            gpu = by_index.get(-1 if seen.gpu is None else seen.gpu)
            if gpu:
                gpu.xid = seen.xid
            if not self._limits.allows((seen.xid, seen.gpu), seen.at_ns):
                self._dropped += 1
                continue
            device = gpu.pci_bus if gpu else None
            text = f"Xid {seen.xid} of {gpu or 'a GPU that NVML does not identify'}"
            yield (self._node, seen.at_ns, "nvml", f"xid_{seen.xid}", device, text)


def _driver(nvml: Nvml) -> str | None:
    try:
        return nvml.nvmlSystemGetDriverVersion()
    except nvml.NVMLError:
        return None


def _unreported(session: _Session) -> Iterator[str]:
    """The values that these models and this driver never report, one sentence each."""
    unreported: dict[tuple[str, str], int] = {}
    for gpu in session.gpus:
        if gpu.unreported:
            key = (gpu.model, ", ".join(sorted(gpu.unreported)))
            unreported[key] = unreported.get(key, 0) + 1
    for (model, columns), count in unreported.items():
        yield f"{count} × {model}: not reported: {columns}"
    if session.xids and session.xids.unwatched:
        yield f"{len(session.xids.unwatched)} GPUs without Xid events"


@source("gpus", every="1 s")
def gpus(surroundings: Surroundings, options: Polled) -> Source:
    """GPUs by NVML, their places and their Xids."""
    return OwnThread(GpuSource(surroundings.root, surroundings.node, options.every_ns))
