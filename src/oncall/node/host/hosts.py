"""Source `hosts`: the node's CPUs, memory and pressure (procfs, sysfs).

Pressure is the share of the time since the last reading in which some task waited (PSI), computed
from the totals, so that nothing between two readings is lost.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oncall.node.common.declaration import Polled, Surroundings, source
from oncall.node.common.own_thread import OwnThread
from oncall.node.common.source import Collected, Instant, Source
from oncall.node.common.system_files import (
    read_counts,
    read_number,
    read_text,
    stored,
    whole_number,
)
from oncall.node.store.batch import one_row

_NS_PER_US = 1000
_IDLE = (3, 4)  # of the times in /proc/stat: idle, and idle while input or output is under way
_TIMES = 8  # user to steal; what guests used is in user and nice already
_PRESSURES = ("cpu", "memory", "io")
_MOST_CLOCKS = 16  # CPUs whose clock is read, evenly spread: a file each


@dataclass(frozen=True)
class _Totals:
    """What only differences show: CPU time in ticks, and time under pressure in ns."""

    at_ns: int
    busy: int
    all: int
    pressure_ns: dict[str, int] = field(default_factory=dict)


class HostSource(Source):
    """One row a reading. The first has neither pressures nor a busy share."""

    name = "hosts"

    def __init__(self, root: Path, node: str, every_ns: int) -> None:
        self.every_ns = every_ns
        self._proc = root / "proc"
        self._system = root / "sys" / "devices" / "system"
        self._node = node
        self._before: _Totals | None = None

    def collect(self, now: Instant) -> Collected:
        times, cpus = self._cpu_times()
        if not times:
            self._before = None
            return Collected(problems=(f"{self._proc / 'stat'}: no CPU times found",))
        pressure_ns = self._pressures()
        idle = sum(times[place] for place in _IDLE)
        totals = _Totals(now.monotonic_ns, sum(times) - idle, sum(times), pressure_ns)
        clocks = self._clocks(cpus)
        memory = read_counts(self._proc / "meminfo")
        errors = self._memory_errors()
        columns = _shares(self._before, totals) | clocks | _memory(memory) | errors
        self._before = totals
        row = one_row(
            "hosts", node=self._node, at_ns=now.realtime_ns, cpus=len(cpus) or None, **columns
        )
        return Collected([row], notes=_unseen(pressure_ns, clocks, errors))

    def _cpu_times(self) -> tuple[list[int], list[int]]:
        """Ticks of all CPUs since boot, user to steal; and the CPUs that are online."""
        times: list[int] = []
        cpus = []
        for line in (read_text(self._proc / "stat") or "").splitlines():
            name, *words = line.split() or [""]
            if not name.startswith("cpu"):
                break  # the rest are interrupts, thousands of them
            if name == "cpu":
                numbers = [whole_number(word) for word in words[:_TIMES]]
                times = [number for number in numbers if number is not None]
            elif (cpu := whole_number(name.removeprefix("cpu"))) is not None:
                cpus.append(cpu)
        return times if len(times) == _TIMES else [], cpus

    def _pressures(self) -> dict[str, int]:
        """Time in which some task waited, since boot, ns; without those not reported."""
        totals = {}
        for what in _PRESSURES:
            for line in (read_text(self._proc / "pressure" / what) or "").splitlines():
                kind, _, rest = line.partition(" ")
                total = whole_number(rest.rpartition("total=")[2])
                if kind == "some" and total is not None:
                    totals[what] = total * _NS_PER_US
        return totals

    def _clocks(self, cpus: list[int]) -> dict[str, Any]:
        chosen = cpus[:: -(-len(cpus) // _MOST_CLOCKS)] if cpus else []
        folders = [self._system / "cpu" / f"cpu{cpu}" / "cpufreq" for cpu in chosen]
        governors = {read_text(folder / "scaling_governor") for folder in folders} - {None}
        return {
            "cpu_mhz": _mean_mhz(folders, "scaling_cur_freq"),
            "cpu_max_mhz": _mean_mhz(folders, "cpuinfo_max_freq"),
            "governor": ",".join(sorted(map(str, governors))) or None,
        }

    def _memory_errors(self) -> dict[str, Any]:
        """The errors that the memory controllers have counted; unknown if one of them does not
        report, since the sum would then look like a counter that was reset."""
        controllers = list((self._system / "edac" / "mc").glob("mc[0-9]*"))
        counts: dict[str, Any] = {}
        for column, file in (("memory_corrected", "ce_count"), ("memory_uncorrected", "ue_count")):
            values = [read_number(controller / file) for controller in controllers]
            known = [count for count in values if count is not None]
            counts[column] = stored(sum(known)) if values and len(known) == len(values) else None
        return counts


def _shares(before: _Totals | None, totals: _Totals) -> dict[str, Any]:
    """Ratios of 0 to 1 over the time between two readings; None where a counter went back."""
    if before is None:
        return {}
    shares = {"cpu_busy": _share(totals.busy - before.busy, totals.all - before.all)}
    span_ns = totals.at_ns - before.at_ns
    for what, total_ns in totals.pressure_ns.items():
        if what in before.pressure_ns:
            shares[f"{what}_pressure"] = _share(total_ns - before.pressure_ns[what], span_ns)
    return shares


def _share(part: int, whole: int) -> float | None:
    # The two are not read in one moment: a little beyond the whole is the whole.
    return min(part / whole, 1.0) if whole > 0 and part >= 0 else None


def _mean_mhz(folders: list[Path], file: str) -> float | None:
    frequencies = [khz for folder in folders if (khz := read_number(folder / file))]
    return sum(frequencies) / len(frequencies) / 1000 if frequencies else None


def _memory(kibibytes: dict[str, int]) -> dict[str, Any]:
    swap, free = kibibytes.get("SwapTotal"), kibibytes.get("SwapFree")
    sizes = {
        "memory_available_bytes": kibibytes.get("MemAvailable"),
        "memory_bytes": kibibytes.get("MemTotal"),
        "swap_used_bytes": None if swap is None or free is None else max(0, swap - free),
    }
    return {column: stored(size, 1024) for column, size in sizes.items()}


def _unseen(
    pressure_ns: dict[str, int], clocks: dict[str, Any], errors: dict[str, Any]
) -> tuple[str, ...]:
    """What this kernel does not report, one sentence each."""
    notes = []
    if not pressure_ns:
        notes.append("no pressure (PSI): the kernel lacks it or was booted with psi=0")
    if clocks["cpu_mhz"] is None:
        notes.append("no CPU clocks: no cpufreq driver, as in many virtual machines")
    if None in errors.values():
        notes.append("no memory errors: no EDAC driver for this memory controller")
    return tuple(notes)


@source("hosts", every="1 s")
def hosts(surroundings: Surroundings, options: Polled) -> Source:
    """Processors, memory and what waits for them."""
    return OwnThread(HostSource(surroundings.root, surroundings.node, options.every_ns))
