"""Evidence rows of what was played: what host agents and switches would have exported."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from oncall.evidence.incident import Incident
from oncall_lab.arrays import Bools, Floats, Ints
from oncall_lab.network.asked import asked
from oncall_lab.network.host_counters import nic_rows
from oncall_lab.network.host_traffic import traffic_tables
from oncall_lab.network.play import Played
from oncall_lab.recording import EPOCH_NS

COMM = 0x0C0117EC71FE
PACKET_BYTES = 1_400
_ROCE_PORT = 4791
_PROTOCOL_UDP = 17
BURSTS = 0.5  # packets that one meets at a busy port without any queue, on average


def record(played: Played, reported: Bools | None = None) -> Incident:
    """All evidence; equal runs give equal rows. `reported` (epochs, ports): who reported what, if
    it is another than the scenario says."""
    recorder = _Recorder(played, reported)
    incident = Incident.empty()
    for table, rows in recorder.tables():
        if len(next(iter(rows.values()))):
            incident.append(table, rows)
    return incident


def flow_names(played: Played) -> list[str]:
    """What each flow is called: by its hosts, and its source port where that is not enough."""
    plan = played.plan
    pairs = [tuple(plan.hosts[member] for member in pair) for pair in plan.messages.pairs]
    pairs += [(flow.src, flow.dst) for flow in plan.flows]
    ports = [*plan.src_ports, *(flow.src_port for flow in plan.flows)]
    times = Counter(pairs)
    return [
        f"{src}->{dst}" + (f" port {port}" if times[src, dst] > 1 else "")
        for (src, dst), port in zip(pairs, ports, strict=True)
    ]


class _Recorder:
    def __init__(self, played: Played, reported: Bools | None) -> None:
        self.reported = reported
        self.played, self.plan, self.tree = played, played.plan, played.plan.tree
        self.scenario = played.scenario
        self.rng = np.random.default_rng([self.scenario.seed, 0x4EC])
        ports = range(len(self.tree.device_of))
        self.device = np.array([self.tree.name(int(self.tree.device_of[p])) for p in ports])
        self.switch = ~np.array([self.tree.is_host(int(self.tree.device_of[p])) for p in ports])

    def tables(self) -> list[tuple[str, dict[str, Any]]]:
        found = [
            ("ranks", self._ranks()),
            ("comms", self._comms()),
            *self._sent(),
            ("links", self._links()),
        ]
        if self.scenario.reports == "never":
            return [*found, ("nics", _dated(nic_rows(self.played, self.rng)))]
        found += self._reports()
        if self.scenario.pauses:
            found.append(("switch_pauses", self._pauses()))
        return found

    def _sent(self) -> list[tuple[str, dict[str, Any]]]:
        """What the members' hosts tell of what they sent."""
        if self.scenario.steps == "traffic":
            return [(name, _dated(rows)) for name, rows in traffic_tables(self.played, COMM)]
        return [("flow_steps", self._steps()), ("flows", self._flows())]

    def _host_names(self, hosts: Any) -> list[str]:
        return [self.tree.name(int(host)) for host in hosts]

    # ------------------------------------------------------------- hosts

    def _ranks(self) -> dict[str, Any]:
        members = np.arange(len(self.plan.hosts))
        nodes = self._host_names(self.plan.hosts)
        return {"job": [self.scenario.job] * len(members), "rank": members, "node": nodes}

    def _comms(self) -> dict[str, Any]:
        size = len(self.plan.hosts)
        return {
            "job": [self.scenario.job] * size,
            "comm": np.full(size, COMM, np.uint64),
            "rank": np.arange(size),
            "comm_rank": np.arange(size),
            "size": size,
            "name": f"collective of {size} hosts",
        }

    def _steps(self) -> dict[str, Any]:
        """Steps that began; `expected_ns` is the bytes' time at line rate and the way's."""
        messages, progress = self.plan.messages, self.played.progress
        begun = ~np.isnan(progress.started_ns)
        ended = np.ma.masked_invalid(progress.ended_ns)[begun]
        hops = np.array([len(path) for path in self.plan.routes])[messages.flow]
        alone = messages.bytes / self.scenario.network_bytes_per_s * 1e9
        alone = alone + hops * self.played.quantum_ns
        rows: dict[str, Any] = {
            "job": [self.scenario.job] * int(begun.sum()),
            "comm": np.full(int(begun.sum()), COMM, np.uint64),
            "seq": 0,
            "flow": messages.flow[begun] + 1,
            "src": messages.src[begun],
            "dst": messages.dst[begun],
            "step": messages.step[begun],
            "bytes": messages.bytes[begun],
            "started_ns": _shown(progress.started_ns[begun]),
            "ended_ns": np.ma.masked_array(_shown(ended.filled(0)), np.ma.getmaskarray(ended)),
        }
        if self.scenario.expectation:
            rows["expected_ns"] = np.rint(alone[begun]).astype(np.int64)
        return rows

    def _flows(self) -> dict[str, Any]:
        plan, played = self.plan, self.played
        own = [tuple(plan.hosts[member] for member in pair) for pair in plan.messages.pairs]
        ends = [*own, *((flow.src, flow.dst) for flow in plan.flows)]
        started = np.r_[np.full(len(own), np.nan), played.flow_started_ns]
        ended = np.r_[np.full(len(own), np.nan), played.flow_ended_ns]
        ended[len(own) :][[flow.lost for flow in plan.flows]] = np.nan
        # Of flows of others, hosts know nothing.
        flows_reported = ~np.isnan(played.flow_started_ns) & (self.scenario.reports != "never")
        seen = np.r_[np.ones(len(own), np.bool_), flows_reported]
        names = np.array(flow_names(played))
        ports = np.array([*plan.src_ports, *(flow.src_port for flow in plan.flows)])
        sizes = np.r_[np.zeros(len(own)), [flow.bytes for flow in plan.flows]]
        src, dst = (np.array(side) for side in zip(*ends, strict=True))
        member = np.arange(len(ends)) < len(own)
        return {
            "flow": np.arange(1, len(ends) + 1)[seen],
            "name": names[seen],
            "src_ip": [f"10.{host >> 8}.{host & 255}.1" for host in src[seen].tolist()],
            "dst_ip": [f"10.{host >> 8}.{host & 255}.1" for host in dst[seen].tolist()],
            "src_host": self._host_names(src[seen]),
            "dst_host": self._host_names(dst[seen]),
            "src_port": ports[seen],
            "dst_port": _ROCE_PORT,
            "protocol": _PROTOCOL_UDP,
            "is_collective": member[seen],
            "bytes": np.ma.masked_array(sizes, member).astype(np.int64)[seen],
            "started_ns": _times(started[seen]),
            "ended_ns": _times(ended[seen]),
        }

    def _links(self) -> dict[str, Any]:
        known = np.ones(len(self.device) // 2, np.bool_)
        if self.scenario.reports == "never":  # LLDP tells a host what it is plugged into
            known = ~self.switch[0::2]
        return {
            "a": self.device[0::2][known],
            "a_port": self.tree.number[0::2][known],
            "b": self.device[1::2][known],
            "b_port": self.tree.number[1::2][known],
            "rate_bytes_per_s": int(self.scenario.network_bytes_per_s),
        }

    # ---------------------------------------------------------- switches

    def _reports(self) -> list[tuple[str, dict[str, Any]]]:
        """Ports, flows and meters of the epochs and ports that reported anything."""
        legs, counts = self.played.legs, self.played.counts
        reported = self.reported if self.reported is not None else self._reported()
        epochs, numbers = np.nonzero((counts.arrived > 0) & reported[:, legs.port])
        port = legs.port[numbers]
        arrived, met, paused = (
            each[epochs, numbers] for each in (counts.arrived, counts.met, counts.paused)
        )
        at_ns = self._epoch_ends()[epochs]
        length = round(self.played.epoch_ns)
        packets = np.ceil(arrived / PACKET_BYTES).astype(np.int64)
        depth = met / arrived / PACKET_BYTES
        ports = self._ports(reported, epochs, port, packets, depth, paused)
        flows = {
            "switch": self.device[port],
            "port": self.tree.number[port],
            "at_ns": at_ns,
            "flow": legs.flow[numbers] + 1,
            "packets": packets,
            "queue_depth": depth,
            "paused_packets": np.rint(paused / PACKET_BYTES).astype(np.int64),
            "epoch_ns": length,
        }
        meters = {
            "switch": self.device[port],
            "from_port": self.tree.number[legs.came_by[numbers] ^ 1],
            "to_port": self.tree.number[port],
            "at_ns": at_ns,
            "bytes": np.rint(arrived).astype(np.int64),
        }
        return [("switch_ports", ports), ("switch_flows", flows), ("switch_meters", meters)]

    def _ports(
        self,
        reported: Bools,
        epochs: Ints,
        port: Ints,
        packets: Ints,
        depth: Floats,
        paused: Floats,
    ) -> dict[str, Any]:
        """Each port that reported, with the sums over its flows; `reported` (epochs, ports)."""
        width = len(self.device)
        place = epochs * width + port
        every = np.flatnonzero(reported)
        counted = np.bincount(place, packets, reported.size)[every]
        queued = np.bincount(place, depth * packets, reported.size)[every]
        met_paused = np.bincount(place, paused, reported.size)[every] / PACKET_BYTES
        busy = np.minimum(1.0, counted * PACKET_BYTES / self._epoch_bytes())
        mean = queued / np.maximum(counted, 1) + self.rng.exponential(BURSTS, len(every)) * busy
        return {
            "switch": self.device[every % width],
            "port": self.tree.number[every % width],
            "at_ns": self._epoch_ends()[every // width],
            "epoch_ns": round(self.played.epoch_ns),
            "queue_depth": np.ma.masked_array(mean, counted == 0),
            "packets": counted.astype(np.int64),
            "paused_packets": np.rint(met_paused).astype(np.int64),
        }

    def _reported(self) -> Bools:
        if self.scenario.reports == "asked":
            return asked(self.played)
        return np.broadcast_to(self.switch, (len(self.played.counts), len(self.switch)))

    def _epoch_bytes(self) -> float:
        return self.played.epoch_ns / 1e9 * self.scenario.network_bytes_per_s

    def _epoch_ends(self) -> Ints:
        ends = self.played.epoch_ns * np.arange(1, len(self.played.counts) + 1)
        return _shown(np.minimum(ends, self.played.until_ns))

    def _pauses(self) -> dict[str, Any]:
        ports = np.array([port for _, port, _ in self.played.pauses], np.int64)
        return {
            "switch": self.device[ports],
            "port": self.tree.number[ports],
            "at_ns": _shown(np.array([at_ns for at_ns, _, _ in self.played.pauses])),
            "paused": np.array([paused for _, _, paused in self.played.pauses], np.bool_),
        }


def _dated(rows: dict[str, Any]) -> dict[str, Any]:
    """Rows with their moments after the begin as Unix time."""
    moments = ("at_ns", "started_ns", "ended_ns", "start_ns")
    return {name: _times(rows[name]) if name in moments else rows[name] for name in rows}


def _shown(true_ns: Floats) -> Ints:
    """Unix time of moments after the begin."""
    return EPOCH_NS + np.rint(true_ns).astype(np.int64)


def _times(true_ns: Floats) -> Any:
    never = np.isnan(true_ns)
    return np.ma.masked_array(_shown(np.where(never, 0, true_ns)), never)
