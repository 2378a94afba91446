"""Writes what collectors measured around a training: one table after the other.

Missing samples, nodes that never answered and tables that nobody collected are left out; each
node's clock stamps its rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from oncall.evidence.incident import Incident, Words
from oncall_lab.arrays import Bools, Ints
from oncall_lab.recording import FIRST_PID, NodeClocks, node_name
from oncall_lab.training.measured.condition import Condition
from oncall_lab.training.measured.devices import device_rows, link_rows
from oncall_lab.training.measured.gpus import activity_of, gpu_columns
from oncall_lab.training.measured.hosts import host_columns, process_columns
from oncall_lab.training.measured.machine import Fleet
from oncall_lab.training.measured.nics import NicModel
from oncall_lab.training.measured.pace import Paces
from oncall_lab.training.measured.pings import ping_columns, schedule
from oncall_lab.training.measured.sampling import (
    GPUS_EVERY_NS,
    HOSTS_EVERY_NS,
    NICS_EVERY_NS,
    Grid,
    grid,
)  # fmt: skip
from oncall_lab.training.measured.traffic import flows_of
from oncall_lab.training.play import Played
from oncall_lab.training.scenario import TrainingScenario


class Recording:
    """One run's measurements, written into an incident."""

    def __init__(
        self,
        scenario: TrainingScenario,
        played: Played,
        condition: Condition,
        fleet: Fleet,
        clocks: NodeClocks,
        incident: Incident,
        paces: Paces,
    ) -> None:
        self.scenario = scenario
        self.played = played
        self.condition = condition
        self.fleet = fleet
        self.clocks = clocks
        self.incident = incident
        self.paces = paces
        self.flows = flows_of(scenario, played)
        self.answered = np.setdiff1d(np.arange(fleet.nodes), scenario.missing_nodes)

    def write(self) -> None:
        """Every table that is seen."""
        self._nics()
        self._gpus_and_hosts()
        self._pings()
        self._devices()
        self._events()

    def _append(self, table: str, columns: Mapping[str, Any]) -> None:
        if table not in self.scenario.unseen and len(columns["at_ns"]):
            self.incident.append(table, columns)

    def _grid(self, name: str, every_ns: float) -> Grid:
        rng = self.scenario.rng(f"grid {name}")
        made = grid(every_ns, self.played.until_ns, self.fleet.nodes, rng)
        made.seen[list(self.scenario.missing_nodes)] = False
        return made

    def _rows(
        self, table: str, on: Grid, node: Ints, keys: Mapping[str, Any], values: Mapping[str, Any]
    ) -> None:
        """Append (owners, times) arrays where seen; `node` and `keys` have a value an owner."""
        owner, time = np.nonzero(on.seen[node])
        at = on.times_ns[time] + on.late_ns[node[owner], time]
        columns: dict[str, Any] = {name: _of_owner(value, owner) for name, value in keys.items()}
        columns |= {name: value[owner, time] for name, value in values.items()}
        if "numa_nodes" in columns:
            known = list(range(self.fleet.machine.numa_nodes))
            sets = [*([node] for node in known), known]
            columns["numa_nodes"] = Words(columns["numa_nodes"].astype(np.int32), sets)
        columns["node"] = Words(node[owner].astype(np.int32), self._names)
        columns["at_ns"] = self.clocks.read(node[owner], at)
        self._append(table, columns)

    @property
    def _names(self) -> list[str]:
        return [node_name(index) for index in range(self.fleet.nodes)]

    def _nics(self) -> None:
        on = self._grid("nics", NICS_EVERY_NS)
        rng = self.scenario.rng("nics")
        model = NicModel(self.condition, self.fleet, self.flows, on, rng)
        counters = model.counters()
        nics = [self.fleet.nic_name(d) for d in range(self.fleet.devices_a_node)]
        keys = {"nic": Words(self.fleet.device_rail.astype(np.int32), nics), "port": 1}
        self._rows("nics", on, self.fleet.device_node, keys, counters.nics)
        for priority, values in counters.priorities.items():
            own = {**keys, "priority": priority}
            self._rows("nic_priorities", on, self.fleet.device_node, own, values)

    def _gpus_and_hosts(self) -> None:
        on = self._grid("gpus", GPUS_EVERY_NS)
        activity = activity_of(self.played, self.condition, on)
        rng = self.scenario.rng("gpus")
        gpus = gpu_columns(self.condition, self.fleet, activity, on, rng)
        gpus["xid"] = self._last_xid(on)
        self._rows("gpus", on, self.fleet.device_node, {"gpu": self.fleet.device_rail}, gpus)
        on = self._grid("hosts", HOSTS_EVERY_NS)
        hosts = host_columns(self.condition, self.fleet, on, self.scenario.rng("hosts"))
        every = np.arange(self.fleet.nodes)
        self._rows("hosts", on, every, {"governor": "performance"}, hosts)
        processes = process_columns(self.condition, self.fleet, on, self.scenario.rng("processes"))
        ranks = np.arange(self.fleet.world_size)
        keys = {"job": self.scenario.job, "rank": ranks, "pid": FIRST_PID + ranks}
        self._rows("host_processes", on, self.fleet.device_node, keys, processes)

    def _last_xid(self, on: Grid) -> np.ma.MaskedArray[Any, Any]:
        """The last XID of each GPU as the event set reported it: none yet is unknown."""
        last = np.zeros((self.fleet.world_size, len(on.times_ns)), dtype=np.int64)
        for event in sorted(self.condition.events, key=lambda e: e.at_ns):
            if event.code.startswith("xid_"):
                for device in self.fleet.on_node(event.node):
                    if self.fleet.pci_bus(int(device), "gpu") == event.device:
                        last[device, on.times_ns >= event.at_ns] = int(event.code[4:])
        return np.ma.MaskedArray(last, mask=last == 0)

    def _pings(self) -> None:
        rng = self.scenario.rng("pings")
        probes = schedule(self.fleet, self.played.until_ns, rng)
        clock = self.scenario.ping_clock
        values = ping_columns(probes, self.condition, self.fleet, self.flows, clock, rng)
        node = self.fleet.device_node[probes.sender]
        target = self.fleet.device_node[probes.target]
        nics = [self.fleet.nic_name(d) for d in range(self.fleet.devices_a_node)]
        rail = self.fleet.device_rail
        seen = np.isin(node, self.answered)
        columns = {
            "node": Words(node.astype(np.int32), self._names),
            "nic": Words(rail[probes.sender].astype(np.int32), nics),
            "target_node": Words(target.astype(np.int32), self._names),
            "target_nic": Words(rail[probes.target].astype(np.int32), nics),
            "at_ns": self.clocks.read(node, probes.at_ns),
            "kind": Words(probes.end_to_end.astype(np.int32), ["network", "end_to_end"]),
            "clock": Words(probes.end_to_end.astype(np.int32), [clock, "program"]),
            **values,
        }
        self._append("pings", {name: _where(value, seen) for name, value in columns.items()})

    def _devices(self) -> None:
        here = np.flatnonzero(np.isin(self.fleet.device_node, self.answered))
        columns = device_rows(self.fleet, here.tolist())
        nodes = np.repeat(self.fleet.device_node[here], 2)
        at = self.clocks.read(nodes, np.full(len(nodes), 0.0))
        self._append("devices", {**columns, "at_ns": at})
        if self.scenario.links_known and "links" not in self.scenario.unseen:
            self.incident.append("links", link_rows(self.fleet))

    def _events(self) -> None:
        known = [
            e
            for e in sorted(self.condition.events, key=lambda e: (e.at_ns, e.node, e.code))
            if e.at_ns <= self.played.until_ns and e.node in self.answered
        ]
        nodes = np.array([event.node for event in known], dtype=np.int64)
        at = np.array([event.at_ns for event in known], dtype=np.float64)
        self._append(
            "host_events",
            {
                "node": [node_name(int(node)) for node in nodes],
                "at_ns": self.clocks.read(nodes, at),
                **{
                    name: [getattr(event, name) for event in known]
                    for name in ("source", "code", "device", "text")
                },
            },
        )


def _of_owner(value: Any, owner: Ints) -> Any:
    """A key's value for every row: scalars stay, words and arrays are looked up."""
    if isinstance(value, Words):
        return Words(value.codes[owner], value.vocabulary)
    return value[owner] if isinstance(value, np.ndarray) else value


def _where(value: Any, seen: Bools) -> Any:
    if isinstance(value, Words):
        return Words(value.codes[seen], value.vocabulary)
    return value[seen]
