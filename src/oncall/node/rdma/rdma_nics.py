"""Source `rdma_nics`: the counters, links and places of this node's RDMA devices.

Read four times a second as in TFD 3.2, from sysfs and from the driver's statistics. A counter
that a device does not have is NULL, as is one that cannot be read just now.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from oncall.core.units import NS_PER_S
from oncall.evidence.codes.nic_counters import (
    WANTED,
    pcie_waiting,
    port_counters,
    priority_counters,
)
from oncall.node.common.declaration import Polled, Surroundings, source
from oncall.node.common.own_thread import OwnThread
from oncall.node.common.source import Collected, Instant, Source
from oncall.node.common.system_files import read_counts, read_text, whole_number
from oncall.node.host.pci import pcie_link
from oncall.node.rdma.ethtool import Statistics
from oncall.node.rdma.rdma_devices import RdmaDevice, device_names, folder, read_device
from oncall.node.store.batch import Batch, of_rows

_LOOK_EVERY_NS = 5 * NS_PER_S  # for what seldom changes: addresses, firmware, which counters are
_BITS_PER_BYTE = 8
_UNSUPPORTED = "N/A"  # `N/A (no PMA)`: the device promises no such counter
_OF_ETHERNET = "_phy"  # counts of an Ethernet link: on InfiniBand the port counts its own
_INTERFACE_COUNTERS = ("tx_bytes", "rx_bytes")


class DriverStatistics(Protocol):
    """Statistics of a network interface by name. Raises OSError if it is not there."""

    def read(self, interface: str) -> Mapping[str, int]: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class _Port:
    """A port and those of its counters that are wanted: name -> file."""

    device: RdmaDevice
    number: int
    place: Path
    counters: Mapping[str, Path]


@dataclass(frozen=True)
class _Reading:
    """A port's counters, and the instant of it: drivers take milliseconds to answer, and a rate
    over a quarter of a second must not carry them."""

    port: _Port
    at_ns: int
    values: Mapping[str, int | None]


class RdmaNicSource:
    """Looks for devices at each reading, and at what they have every few seconds."""

    name = "rdma_nics"

    def __init__(
        self,
        root: Path,
        node: str,
        every_ns: int,
        statistics: DriverStatistics | None = None,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._busy_every_ns = every_ns
        self._root = root
        self._node = node
        self._devices: dict[str, RdmaDevice] = {}
        self._ports: list[_Port] = []
        self._gone: set[str] = set()
        self._look_at_ns = 0
        self._statistics = statistics or Statistics(_named("ethtool/"))
        self._monotonic_ns = monotonic_ns
        self._problems: list[str] = []
        self._garbage: dict[Path, str] = {}  # by the file that holds it

    @property
    def every_ns(self) -> int:
        """How often counters are read; without a device, how often one is looked for."""
        return self._busy_every_ns if self._devices else max(self._busy_every_ns, NS_PER_S)

    def collect(self, now: Instant) -> Collected:
        """Every port's counters now, and devices that are new or have changed."""
        self._problems = []
        names = device_names(self._root)
        before = set(self._devices)
        changed = self._look(names or [], now)
        readings = [self._read(port, now) for port in self._ports]
        batches = [
            _batch("nics", map(self._nic_row, readings)),
            _batch("nic_priorities", self._priority_rows(readings)),
            _batch("devices", (self._device_row(device, now) for device in changed)),
            _batch("host_events", self._departures(before - set(self._devices), now)),
        ]
        self._problems += [f"{name} has disappeared" for name in sorted(self._gone)]
        return Collected(
            [batch for batch in batches if batch.rows],
            problems=tuple(dict.fromkeys(self._problems)),
            notes=self._notes(names),
        )

    def current_state(self, now: Instant) -> Sequence[Batch]:
        """Which devices there are."""
        rows = [self._device_row(device, now) for device in self._devices.values()]
        return [_batch("devices", rows)] if rows else []

    def close(self) -> None:
        self._statistics.close()

    # ---------------------------------------------------------------- what is there

    def _look(self, names: Sequence[str], now: Instant) -> list[RdmaDevice]:
        """Follow devices that come, go and change; returns those that are new or have changed."""
        is_same = set(names) == set(self._devices)
        if is_same and now.monotonic_ns < self._look_at_ns:
            return []
        self._look_at_ns = now.monotonic_ns + _LOOK_EVERY_NS
        found = {name: read_device(self._root, name) for name in names}
        changed = [found[name] for name in names if found[name] != self._devices.get(name)]
        self._gone = (self._gone | set(self._devices)) - set(found)
        self._devices = found
        self._ports = [
            self._port(device, number) for device in found.values() for number in device.ports
        ]
        return changed

    def _port(self, device: RdmaDevice, number: int) -> _Port:
        place = folder(self._root) / device.name / "ports" / str(number)
        counters = {
            f"{kind}/{name}": place / kind / name
            for kind in ("counters", "hw_counters")
            for name in _files(place / kind)
            if f"{kind}/{name}" in WANTED
        }
        if device.pci_bus is None and device.interface:
            net = self._root / "sys" / "class" / "net" / device.interface / "statistics"
            counters |= {f"net/{name}": net / name for name in _INTERFACE_COUNTERS}
        return _Port(device, number, place, counters)

    def _notes(self, names: Sequence[str] | None) -> tuple[str, ...]:
        if names:
            return ()
        where = folder(self._root)
        why = f"{where} does not exist" if names is None else f"{where} is empty"
        return (f"no RDMA device found: {why}",)

    # ------------------------------------------------------------------ a reading

    def _read(self, port: _Port, now: Instant) -> _Reading:
        """The port's current counters; None for one that is there and cannot be read."""
        at_ns = now.realtime_ns + self._monotonic_ns() - now.monotonic_ns
        values: dict[str, int | None] = {}
        for name, path in port.counters.items():
            text = read_text(path)
            if text is None:
                values[name] = None
            elif not text.startswith(_UNSUPPORTED):
                values[name] = self._counter(path, text)
        device = folder(self._root) / port.device.name / "device"
        errors = read_counts(device / "aer_dev_correctable").get("TOTAL_ERR_COR")
        if errors is not None:
            values["pci/aer_dev_correctable"] = errors
        return _Reading(port, at_ns, values | self._driver_statistics(port.device))

    def _counter(self, path: Path, text: str) -> int | None:
        value = whole_number(text)
        if value is None or value < 0:
            # What it held first: garbage that is another each time must not fill the log.
            first = self._garbage.setdefault(path, text[:40])
            self._problems.append(f"{path} holds {first!r}, not a count")
            return None
        self._garbage.pop(path, None)
        return value

    def _driver_statistics(self, device: RdmaDevice) -> dict[str, int | None]:
        if device.statistics_interface is None:
            return {}
        try:
            values = self._statistics.read(device.statistics_interface)
        except OSError as error:
            self._problems.append(
                f"{device.name}: no statistics of {device.statistics_interface}: {error.strerror}"
            )
            return {}
        return {
            f"ethtool/{name}": value
            for name, value in values.items()
            if not (device.is_infiniband and name.endswith(_OF_ETHERNET))
        }

    # ----------------------------------------------------------------------- rows

    def _nic_row(self, reading: _Reading) -> dict[str, object]:
        place = reading.port.place
        state = read_text(place / "state")
        is_up = None if state is None else state.endswith("ACTIVE")
        return {
            **self._who(reading),
            **port_counters(reading.values),
            "pcie_waiting": pcie_waiting(reading.values),
            "link_up": is_up,
            # Of a link that is down some drivers report the slowest rate there is.
            "rate_bytes_per_s": link_rate(read_text(place / "rate")) if is_up else None,
            **pcie_link(folder(self._root) / reading.port.device.name / "device"),
        }

    def _priority_rows(self, readings: Iterable[_Reading]) -> Iterator[dict[str, object]]:
        for reading in readings:
            for priority, counters in priority_counters(reading.values).items():
                yield {**self._who(reading), "priority": priority, **counters}

    def _who(self, reading: _Reading) -> dict[str, object]:
        return {
            "node": self._node,
            "nic": reading.port.device.name,
            "port": reading.port.number,
            "at_ns": reading.at_ns,
        }

    def _device_row(self, device: RdmaDevice, now: Instant) -> dict[str, object]:
        return {
            "node": self._node,
            "kind": "nic",
            "device": device.name,
            "at_ns": now.realtime_ns,
            "pci_bus": device.pci_bus,
            "pcie_port": device.pci.port,
            "pcie_path": device.pci.path or None,
            "numa_node": device.pci.numa_node,
            "model": device.model,
            "firmware": device.firmware,
            "address": device.address,
            "interface": device.interface,
        }

    def _departures(self, names: Iterable[str], now: Instant) -> Iterator[dict[str, object]]:
        for name in sorted(names):
            yield {
                "node": self._node,
                "at_ns": now.realtime_ns,
                "source": "sysfs",
                "code": "nic_gone",
                "device": name,
                "text": f"RDMA device {name} is no longer listed",
            }


def link_rate(text: str | None) -> int | None:
    """Bytes a second of a rate such as `400 Gb/sec (4X NDR)`, as the link's lanes carry them."""
    number, _, unit = (text or "").partition(" ")
    try:
        gigabits = float(number)
    except ValueError:
        return None
    if not unit.startswith("Gb/sec") or not 0 < gigabits < 1e6:
        return None
    return int(gigabits * 1e9) // _BITS_PER_BYTE


def _named(prefix: str) -> frozenset[str]:
    return frozenset(name.removeprefix(prefix) for name in WANTED if name.startswith(prefix))


def _files(place: Path) -> list[str]:
    try:
        return sorted(path.name for path in place.iterdir())
    except OSError:
        return []


def _batch(table: str, rows: Iterable[dict[str, object]]) -> Batch:
    """Rows with the same columns each."""
    listed = list(rows)
    names = list(listed[0]) if listed else []
    return of_rows(table, names, [list(row.values()) for row in listed])


@source("rdma_nics", every="250 ms")
def rdma_nics(surroundings: Surroundings, options: Polled) -> Source:
    """Counters, links and places of RDMA devices."""
    return OwnThread(RdmaNicSource(surroundings.root, surroundings.node, options.every_ns))
