"""The noise of a busy cluster, added to the readings of an incident: what hundreds of sound devices
and hosts show of themselves and of their neighbours, and no job is slower for.

Rates are log-normal over devices, so that one device is always the worst by far; loads last for
seconds and are shared by the ports of a switch. What an incident does not record stays NULL.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import duckdb
import numpy as np

Array = Any
PACKET_BYTES: Final = 4096  # RoCE's MTU
PAUSE_S: Final = 4e-6  # a queue of 200 kB drains at 50 GB/s
LOAD_LASTS_S: Final = 8.0  # neighbours' bursts of collectives, checkpoints and reads
POWER_CAP, THERMAL = 0x4, 0x20  # NVML's clocks event reasons, both by software


@dataclass(frozen=True)
class Magnitude:
    """The median over devices and the standard deviation of its logarithm."""

    median: float
    sigma: float
    unit: str
    why: str


# Its median grows with the level.
RATES: Final = {
    "marked": Magnitude(1e-3, 0.7, "of packets", "switches mark where other jobs' traffic queues"),
    "notified": Magnitude(0.25, 0.2, "per mark", "a NIC notifies a sender once in microseconds"),
    "pause_in": Magnitude(4, 1.3, "1/s", "neighbours' incasts fill a lossless queue"),
    "pause_out": Magnitude(0.3, 1.3, "1/s", "PCIe or host memory is busy for a moment"),
    "overtaken": Magnitude(2 / 60, 1.5, "packets/s", "adaptive routing reorders"),
    "retransmits": Magnitude(0.5 / 60, 1.5, "1/s", "single packets damaged on the way"),
    "corrected_bits": Magnitude(4e3, 1.7, "bits/s", "1e-8 of 425 Gb/s before FEC; FEC mends 1e-4"),
    "symbols": Magnitude(0.5 / 3600, 1.0, "1/s", "of a sound link: one packet in 1e12"),
    "discards": Magnitude(0.1 / 60, 1.0, "packets/s", "unknown VLANs, spanning tree, LLDP"),
    "no_buffer": Magnitude(0.05 / 60, 1.0, "1/s", "storage clients post receives late"),
    "pcie_waits": Magnitude(0.02, 0.6, "of a second", "reads by GPUs and storage beside the NIC"),
    "storage": Magnitude(5e6, 1.0, "bytes/s", "samples, logs and metrics through one port a host"),
    "aer": Magnitude(1 / 3600, 1.2, "1/s a host", "marginal lanes; each costs a replay of 1 us"),
    "tails": Magnitude(0.03, 0.5, "of probes", "an answer waits behind a burst or a busy core"),
    "clock_below": Magnitude(8, 0.8, "MHz", "steps of 15 MHz; leakage differs between dies"),
    "ecc": Magnitude(0.3 / 3600, 1.5, "1/s a GPU", "HBM of 141 GB corrects single bits"),
    "cpu_busy": Magnitude(0.05, 0.8, "of all CPUs", "loaders, agents, tokenizers, filesystems"),
    "cpu_pressure": Magnitude(0.01, 0.9, "PSI", "one of 128 CPUs is wanted twice"),
    "io_pressure": Magnitude(0.02, 0.9, "PSI", "readers of shared storage wait; loaders are ahead"),
    "reclaim": Magnitude(0.004, 0.9, "PSI", "page cache is given back and filled again"),
    "waited": Magnitude(1e-3, 0.9, "of the time", "the scheduler shares a core for moments"),
    "major_faults": Magnitude(0.3, 1.2, "1/s", "mapped samples are read from disk by loaders"),
    "reads": Magnitude(3e6, 0.8, "bytes/s", "loaders of ranks read different shards"),
    "ce": Magnitude(0.1 / 3600, 1.5, "1/s a host", "1.5 TB of DIMMs correct single bits"),
}
# The deviation of its logarithm grows with the level.
SPREADS: Final = {
    "path": Magnitude(1, 0.08, "times", "hops, cables, ECMP: 25 % between the ends of most pairs"),
    "tail": Magnitude(3, 0.5, "times more", "one queue of 100 us, one time slice"),
    "power": Magnitude(1, 0.04, "times", "dies and places in the air stream"),
    "cpu_mhz": Magnitude(1, 0.03, "times", "turbo depends on load and temperature"),
    "thermal_cap": Magnitude(0.02, 0.4, "of the clock", "slots at the end of the air stream"),
    "taken": Magnitude(0.2, 0.7, "of memory", "staged checkpoints and samples in tmpfs"),
    "old": Magnitude(20, 2.0, "since boot", "counters are not reset; links are replugged"),
}
# Of devices or of moments, at each level.
CHANCES: Final = {
    "has_old": Magnitude(0.3, 0, "of counters", "bring-up, reboots, replaced cables"),
    "thermal": Magnitude(0.06, 0, "of GPUs", "a slot or two of each rack"),
    "power_capped": Magnitude(0.3, 0, "of GPUs", "peaks reach 700 W; the mean clock hardly falls"),
    "lost": Magnitude(5e-4, 0, "of probes", "they are not in the lossless class"),
    "few_probes": Magnitude(0.5, 0, "of cases", "meshes of N^2 paths are probed once a minute"),
}
PER_LEVEL: Final = {"quiet": (0.1, 0.5), "busy": (1.0, 1.0), "very_busy": (4.0, 1.6)}


class Draws:
    """Draws of one incident's noise."""

    def __init__(self, rng: np.random.Generator, level: str) -> None:
        self.rng = rng
        self._rates, self._spreads = PER_LEVEL[level]

    def of(self, name: str, most: float = np.inf) -> float:
        """One device's rate or factor."""
        rate, spread = RATES.get(name), SPREADS.get(name)
        scale, sigma = (self._rates, rate.sigma) if rate else (1.0, 0.0)
        if spread:
            sigma = spread.sigma * self._spreads
        known = rate or spread or CHANCES[name]
        return float(min(most, known.median * scale * np.exp(sigma * self.rng.standard_normal())))

    def happens(self, name: str) -> bool:
        return bool(self.rng.random() < CHANCES[name].median)

    def old(self) -> int:
        """What a counter of rare events counted before the job."""
        return round(self.of("old", 1e6)) if self.happens("has_old") else 0

    def load(self, first_s: float, last_s: float, sigma: float = 0.5) -> tuple[Array, Array]:
        """A load of mean 1 that lasts for seconds: its instants and values."""
        grid = np.arange(first_s - 1, last_s + 2)
        keeps = np.exp(-1 / LOAD_LASTS_S)
        steps = self.rng.standard_normal(len(grid)) * sigma * np.sqrt(1 - keeps**2)
        log = np.empty(len(grid))
        log[0] = self.rng.standard_normal() * sigma
        for i in range(1, len(grid)):
            log[i] = keeps * log[i - 1] + steps[i]
        return grid, np.exp(log - sigma**2 / 2)


class Readings:
    """A table's rows by device and time; changed columns are written back."""

    def __init__(self, con: duckdb.DuckDBPyConnection, table: str, keys: tuple[str, ...]) -> None:
        self._con, self._table, self._keys = con, table, keys
        self._types = {r[0]: r[1] for r in con.execute(f"DESCRIBE {table}").fetchall()}
        names = ", ".join(n for n, t in self._types.items() if not t.endswith("[]"))
        order = ", ".join((*keys, "at_ns", "rowid"))
        read = con.execute(f"SELECT rowid AS row, {names} FROM {table} ORDER BY {order}")
        self.columns = {name: np.ma.array(v) for name, v in read.fetchnumpy().items()}
        self._changed: set[str] = set()
        self.seconds = np.asarray(self.columns["at_ns"].filled(0)) / 1e9

    def __len__(self) -> int:
        return len(self.seconds)

    def devices(self) -> Iterator[tuple[tuple[Any, ...], slice]]:
        """Each device's key and rows."""
        keys = list(zip(*(self.columns[k].tolist() for k in self._keys), strict=True))
        begins = [i for i, key in enumerate(keys) if i == 0 or key != keys[i - 1]]
        for begin, end in zip(begins, (*begins[1:], len(keys)), strict=True):
            yield keys[begin], slice(begin, end)

    def steps(self, column: str, rows: slice) -> Array:
        """By how much a counter grew since the reading before; 0 where it did not or is NULL."""
        values = self.columns[column][rows].filled(0).astype(float)
        return np.maximum(np.diff(values, prepend=values[:1]), 0)

    def put(self, column: str, rows: slice | Array, values: Array) -> None:
        """New values, where there were any."""
        null = np.ma.getmaskarray(self.columns[column])[rows]
        if null.all():
            return
        kind = self.columns[column].dtype
        values = np.round(values) if kind.kind in "iu" else values
        old = self.columns[column][rows].filled(0)
        filled = np.where(null, old, np.ma.filled(values, 0)).astype(kind)
        self.columns[column][rows] = np.ma.array(filled, mask=null)
        self._changed.add(column)

    def add(self, column: str, rows: slice, more: Array, most: float = np.inf) -> None:
        """A level rises by `more`, not above `most` unless it was there."""
        values = self.columns[column][rows].filled(0)
        self.put(column, rows, np.maximum(values, np.minimum(values + more, most)))

    def count(self, column: str, rows: slice, more: Array, before: int = 0) -> None:
        """A counter grows by `more` since the reading before; one that fell (reset, wrapped) or
        has NULLs is left as it is."""
        values = self.columns[column][rows]
        if np.ma.getmaskarray(values).any() or (np.diff(values) < 0).any():
            return
        self.put(column, rows, values.filled(0) + before + np.cumsum(np.round(more).astype(int)))

    def lose(self, rows: Array) -> None:
        """Probes without an answer."""
        self.columns["lost"][rows] = True
        for column in ("rtt_ns", "target_ns"):
            self.columns[column][rows] = np.ma.masked
        self._changed |= {"lost", "rtt_ns", "target_ns"}

    def write(self) -> None:
        arrays: dict[str, Array] = {"row": self.columns["row"].filled(0)}
        sets = []
        for c in sorted(self._changed):
            mask = np.ma.getmaskarray(self.columns[c])
            arrays[c], arrays[f"{c}_null"] = self.columns[c].filled(0), mask
            sets.append(f"{c} = CASE WHEN s.{c}_null THEN NULL ELSE s.{c} END::{self._types[c]}")
        if sets:
            self._con.register("changes", arrays)
            where = f"FROM changes s WHERE {self._table}.rowid = s.row"
            self._con.execute(f"UPDATE {self._table} SET {', '.join(sets)} {where}")
            self._con.unregister("changes")


def add_to_ports(nics: Readings, draws: Draws, errors: dict[tuple[str, str], list[float]]) -> None:
    """Counters of the ports. `errors`: when which NIC's PCIe link had a corrected error."""
    rng = draws.rng
    touched = rng.choice([1.0, 0.5, 0.15])  # all, the rails of some switches, a few ports
    loads: dict[str, tuple[Array, Array]] = {}
    stores: set[str] = set()
    for (node, nic, _), rows in nics.devices():
        at = nics.seconds[rows]
        if nic not in loads:  # a rail's ports share a switch
            loads[nic] = draws.load(nics.seconds.min(), nics.seconds.max())
        load = np.interp(at, *loads[nic])
        is_up = nics.columns["link_up"][rows].filled(True)
        time = np.diff(at, prepend=at[0]) * is_up

        def seen(name: str, amounts: Array, most: float = np.inf, draws: Draws = draws) -> Array:
            return draws.rng.poisson(draws.of(name, most) * amounts)

        if rng.random() < touched:
            for bytes_, counters in (
                ("rx_bytes", ("ecn_marked", "cnp_sent")),
                ("tx_bytes", ("", "cnp_handled")),
            ):
                marks = seen("marked", nics.steps(bytes_, rows) / PACKET_BYTES * load, 0.02)
                if counters[0]:
                    nics.count(counters[0], rows, marks)
                nics.count(counters[1], rows, marks * draws.of("notified", 0.5))
        for name, counter in (("pause_in", "pfc_rx_pause"), ("pause_out", "pfc_tx_pause")):
            pauses = seen(name, time * load, 300)
            nics.count(counter, rows, pauses)
            nics.count(f"{counter}_ns", rows, pauses * PAUSE_S * 1e9)
        for name, counter in (
            ("overtaken", "out_of_sequence"),
            ("retransmits", "retransmits"),
            ("symbols", "link_errors"),
            ("discards", "rx_discards"),
            ("no_buffer", "out_of_buffer"),
        ):
            nics.count(counter, rows, seen(name, time * load, 10), draws.old())
        nics.count("corrected_bits", rows, seen("corrected_bits", time, 1e6), draws.old())
        for counter in ("timeouts", "link_downs"):  # of before: none happens to a sound port
            nics.count(counter, rows, time * 0, draws.old() // 10)
        hit = np.searchsorted(at, errors.get((node, nic), []))
        nics.count(
            "pcie_errors", rows, np.bincount(hit, minlength=len(at) + 1)[: len(at)], draws.old()
        )
        sends = np.minimum(nics.steps("tx_bytes", rows) / np.maximum(time, 1e-3) / 1e9, 1)
        nics.add("pcie_waiting", rows, draws.of("pcie_waits", 0.1) * load * (0.2 + sends), 0.25)
        nics.count("pcie_stalls", rows, rng.random(len(at)) < 2e-3 * sends * time)
        if node not in stores:  # the port by which the host reaches storage
            stores.add(node)
            for counter in ("rx_bytes", "tx_bytes"):
                nics.count(counter, rows, draws.of("storage", 5e7) * time * load)


def add_to_pings(pings: Readings, draws: Draws) -> Array:
    """Paths of different length, waits behind others, lost probes. Returns rows that a prober
    with a few probes a path would not have written."""
    rng, columns = draws.rng, pings.columns
    rtt, turn = (columns[c].filled(0).astype(float) for c in ("rtt_ns", "target_ns"))
    ends: dict[Any, float] = {}
    tails: dict[Any, float] = {}
    loads: dict[str, tuple[Array, Array]] = {}
    names = ("node", "nic", "target_node", "target_nic", "kind")
    paths = list(zip(*(columns[c].tolist() for c in names), strict=True))
    order = rng.permutation(len(paths))
    seen: dict[Any, int] = {}
    few, drop = draws.happens("few_probes"), []
    for i in order:
        node, nic, target, target_nic, kind = path = paths[i]
        if nic not in loads:
            loads[nic] = draws.load(pings.seconds.min(), pings.seconds.max(), 0.1)
        load = np.interp(pings.seconds[i], *loads[nic])
        for end in ((node, nic), (target, target_nic), (node, target)):
            rtt[i] *= ends.setdefault(end, draws.of("path"))
        turn[i] *= ends.setdefault((target, "turn"), draws.of("path"))
        rtt[i] *= load
        for host, time in ((node, rtt), (target, turn)):
            if rng.random() < tails.setdefault((host, kind), draws.of("tails", 0.2)):
                time[i] *= 1 + draws.of("tail", 30)
        if path not in seen:
            seen[path] = int(rng.integers(1, 4))
        seen[path] -= 1
        if few and seen[path] < 0:
            drop.append(i)
    pings.put("rtt_ns", slice(None), rtt)
    pings.put("target_ns", slice(None), turn)
    pings.lose(np.flatnonzero(rng.random(len(paths)) < CHANCES["lost"].median))
    return columns["row"].filled(0)[drop]


def add_to_gpus(gpus: Readings, draws: Draws, errors: dict[tuple[str, int], list[float]]) -> None:
    """Clocks, power and heat of different dies; bits that say why a clock is as it is."""
    rng, columns = draws.rng, gpus.columns
    for (node, gpu), rows in gpus.devices():
        at = gpus.seconds[rows]
        time = np.diff(at, prepend=at[0])
        clock = columns["sm_clock_mhz"][rows].filled(0) - 15 * round(draws.of("clock_below") / 15)
        reasons = columns["throttle_reasons"][rows].filled(0).astype(np.uint64)
        if draws.happens("thermal"):
            load = np.minimum(np.interp(at, *draws.load(at.min(), at.max())), 1.3)
            clock = clock * (1 - draws.of("thermal_cap", 0.03) * load)
            reasons |= np.where(load > 0.8, THERMAL, 0).astype(np.uint64)
        if draws.happens("power_capped"):
            reasons |= np.where(rng.random(len(at)) < rng.random(), POWER_CAP, 0).astype(np.uint64)
        gpus.put("sm_clock_mhz", rows, clock)
        gpus.put("throttle_reasons", rows, reasons)
        power = columns["power_w"][rows].filled(0)
        limit = np.maximum(columns["power_limit_w"][rows].filled(np.inf), power)
        gpus.put("power_w", rows, np.minimum(power * draws.of("power"), limit))
        heat = rng.normal(0, 4)  # degrees between places in a chassis
        gpus.put("temp_c", rows, columns["temp_c"][rows].filled(0) + heat)
        gpus.add("memory_used_bytes", rows, rng.uniform(0, 5e8))  # contexts, NCCL's buffers
        gpus.count("ecc_corrected", rows, rng.poisson(draws.of("ecc") * time), draws.old())
        hit = np.searchsorted(at, errors.get((node, gpu), []))
        replays = np.bincount(hit, minlength=len(at) + 1)[: len(at)]
        gpus.count("pcie_replays", rows, replays, draws.old())


def minutes(at: Array) -> Array:
    """1 in the two seconds after a whole minute, when timers start what they run, else 0."""
    return (at % 60 < 2).astype(float)


def add_to_hosts(hosts: Readings, draws: Draws, errors: dict[str, list[float]]) -> None:
    """What else runs on hosts, and what it takes of CPUs, memory and storage."""
    for (node,), rows in hosts.devices():
        at = hosts.seconds[rows]
        load = np.interp(at, *draws.load(at.min(), at.max()))
        hosts.add("cpu_busy", rows, draws.of("cpu_busy", 0.4) * load + 0.05 * minutes(at), 0.9)
        hosts.add("cpu_pressure", rows, draws.of("cpu_pressure", 0.1) * load, 0.15)
        io = draws.of("io_pressure", 0.15) * load**2
        hosts.add("io_pressure", rows, io + 0.03 * minutes(at), 0.3)
        reclaim = draws.of("reclaim", 0.03) * np.maximum(load - 1, 0)
        hosts.add("memory_pressure", rows, reclaim, 0.05)
        free = hosts.columns["memory_available_bytes"][rows].filled(0)
        hosts.put("memory_available_bytes", rows, free * (1 - draws.of("taken", 0.6)))
        mhz = hosts.columns["cpu_mhz"][rows].filled(0)
        hosts.put("cpu_mhz", rows, mhz * min(draws.of("cpu_mhz"), 1.05))
        cold = min(draws.old() * 1e6, 4e9)  # pages swapped out long ago
        hosts.add("swap_used_bytes", rows, cold)
        hit = np.searchsorted(at, errors.get(node, []))
        corrected = np.bincount(hit, minlength=len(at) + 1)[: len(at)]
        hosts.count("memory_corrected", rows, corrected, draws.old())


def add_to_processes(processes: Readings, draws: Draws) -> None:
    """What the job's processes see of it."""
    for _, rows in processes.devices():
        at = processes.seconds[rows]
        time = np.diff(at, prepend=at[0])
        load = np.interp(at, *draws.load(at.min(), at.max()))
        waited = draws.of("waited", 0.02) * load + 3e-3 * minutes(at)
        processes.count("waited_ns", rows, waited * time * 1e9)
        faults = draws.rng.poisson(draws.of("major_faults", 20) * time * load)
        processes.count("major_faults", rows, faults)
        processes.count("read_bytes", rows, draws.of("reads", 5e7) * time * load)
