"""Evidence rows of what was played: what host hooks, verbs and NICs would have left."""

from __future__ import annotations

from typing import Any

import numpy as np

from oncall.evidence.incident import Incident, Words
from oncall_lab.arrays import Ints
from oncall_lab.recording import EPOCH_NS, NodeClocks, Recorder, node_name
from oncall_lab.traffic import epochs
from oncall_lab.traffic.host_rows import host_rows
from oncall_lab.traffic.operation_traffic import calls_of, operation_traffic, words
from oncall_lab.traffic.play import Played
from oncall_lab.traffic.proxy import ProxySteps
from oncall_lab.traffic.queue_pairs import QueuePairs, connect, stalled_pairs
from oncall_lab.traffic.scenario import TrafficScenario
from oncall_lab.traffic.slices import Slices
from oncall_lab.training.cluster import memberships

SETUP_NS = 60e9  # connections are made this long before the first operation


def record(scenario: TrafficScenario, played: Played) -> Incident:
    """All evidence; equal scenarios give equal rows."""
    return _Recorder(scenario, played).record()


class _Recorder(Recorder):
    def __init__(self, scenario: TrafficScenario, played: Played) -> None:
        super().__init__(scenario, NodeClocks(scenario, played.cluster.nodes), played.until_ns)
        self.scenario, self.played, self.cluster = scenario, played, played.cluster

    def record(self) -> Incident:
        self._job()
        ranks = np.arange(self.cluster.world_size)
        self.ranks(ranks, self.cluster.local, self.cluster.local)
        self._communicators()
        every = np.arange(self.scenario.nodes)
        self.incident.append("clocks", self.clocks.measured(every, self.played.until_ns))
        self._operations()
        self._traffic()
        if self.played.steps is not None:
            self._transfers(self.played.steps)
        if self.scenario.hosts:
            rows = host_rows(self.scenario, self.played, self.clocks.offset_ns)
            self.incident.append("hosts", rows)
        if self.scenario.missing_nodes:
            self._silence()
        return self.incident

    def _silence(self) -> None:
        """Of nodes that never answered nothing is known but what others know."""
        names = [node_name(node) for node in self.scenario.missing_nodes]
        ranks = np.flatnonzero(np.isin(self.cluster.nodes, self.scenario.missing_nodes)).tolist()
        for table in ("qps", "wr_windows", "epochs", "op_traffic", "hosts", "clocks", "ranks"):
            self.incident.con.execute(f"DELETE FROM {table} WHERE list_contains(?, node)", [names])
        for table in ("ops", "transfers"):
            self.incident.con.execute(f"DELETE FROM {table} WHERE list_contains(?, rank)", [ranks])

    def _nics_of(self, ranks: Ints) -> Words:
        return self.nics(self.cluster.local[ranks])

    def _job(self) -> None:
        s = self.scenario
        stated: dict[str, Any] = {"job": [s.job], "world_size": s.world_size}
        if s.trains:
            stated |= {name: getattr(s, name) for name in ("tp", "pp", "dp", "micro_batches")}
            stated |= {"ep": s.dp if s.workload == "mixtral" else 1, "cp": 1, "schedule": "1F1B"}
        self.incident.append("jobs", {**stated, "framework": "simulated"})

    def _communicators(self) -> None:
        """Names and roles are not recorded: Pulse infers what a group is for."""
        self.append("comms", memberships(self.cluster.communicators))

    def _operations(self) -> None:
        """Host calls; on the device only if the scenario says that a plugin recorded them."""
        c, on_device = self.played.calls, self.scenario.device_times
        done = np.isfinite(c.ended_ns)
        p2p = c.peer >= 0
        rows = {
            "comm": c.comm,
            "seq": c.seq,
            "rank": c.rank,
            "kind": Words(p2p.astype(np.int32), ["coll", "p2p"]),
            "op": words(c.op),
            "dtype": "bfloat16",
            "count": c.bytes // 2,
            "bytes": c.bytes,
            "peer": np.ma.MaskedArray(c.peer, mask=~p2p),
            "pair_seq": np.ma.MaskedArray(c.pair_seq, mask=~p2p),
            "group_id": np.ma.MaskedArray(c.group, mask=~p2p),
            "enqueued_ns": self.clocks.shown(c.rank, c.enqueued_ns),
            "observed_ns": self.clocks.shown(c.rank, self.played.until_ns),
        }
        if on_device:
            ended = self.clocks.shown(c.rank, c.ended_ns)
            entered = self.clocks.shown(c.rank, c.entered_ns)
            rows |= {
                "algo": words(c.algo, empty=True),
                "proto": "SIMPLE",
                "channels": np.where(p2p, 1, self.scenario.channels),
                "started_ns": np.ma.MaskedArray(entered, mask=~np.isfinite(c.entered_ns)),
                "ended_ns": np.ma.MaskedArray(ended, mask=~done),
                "done": done,
            }
        self.append("ops", rows)

    def _transfers(self, steps: ProxySteps) -> None:
        """Proxy operations that were completed; of stalled ones nothing is recorded here, nor of
        a rank that never called."""
        calls = self.played.calls
        call = calls_of(calls, steps.operation, steps.rank, steps.peer, self.cluster.world_size,
                        sends=steps.sends)  # fmt: skip
        steps, call = steps.where(call >= 0), call[call >= 0]
        is_p2p = calls.peer[call] >= 0
        self.append(
            "transfers",
            {
                "comm": calls.comm[call],
                "seq": calls.seq[call],
                "kind": Words(is_p2p.astype(np.int32), ["coll", "p2p"]),
                "rank": steps.rank,
                "channel": steps.channel,
                "peer": steps.peer,
                "direction": Words((~steps.sends).astype(np.int32), ["send", "recv"]),
                "steps": steps.steps,
                "steps_done": steps.steps,
                "bytes": np.rint(steps.bytes).astype(np.int64),
                "peer_wait_ns": np.ma.MaskedArray(np.rint(steps.flush_ns), mask=steps.sends),
                "wire_wait_ns": np.ma.MaskedArray(np.rint(steps.wire_ns), mask=~steps.sends),
                "started_ns": self.clocks.shown(steps.rank, steps.started_ns),
                "ended_ns": self.clocks.shown(steps.rank, steps.ended_ns),
                "observed_ns": self.clocks.shown(steps.rank, steps.ended_ns),
            },
        )

    # ------------------------------------------------------------- traffic

    def _traffic(self) -> None:
        rng = self.scenario.rng("measurement")
        slices, is_message = epochs.on_the_wire(self.scenario, self.played.slices, rng)
        pairs = connect(self.scenario, self.played, slices, is_message)
        if self.scenario.source != "proxy":
            self._queue_pairs(pairs)
        if self.scenario.source == "wr":
            self._stalled_pairs(slices, pairs)
        offset = self.clocks.offset_ns[self.cluster.nodes]
        measured = epochs.measure(self.scenario, slices, pairs.flow, offset[slices.sender], rng)
        rank = pairs.rank[measured.flow]
        self.incident.append(
            "epochs",
            {
                "node": self.clocks.nodes(rank),
                "nic": self._nics_of(rank),
                "start_ns": EPOCH_NS + measured.start_ns,
                "epoch_ns": self.scenario.epoch_ns,
                "bytes": measured.bytes,
                "source": self.scenario.source,
                "undercount": measured.undercount,
                **self._known_of_flows(pairs, measured.flow),
            },
        )
        if self.scenario.op_traffic:
            found = operation_traffic(self.scenario, self.played, slices.where(~is_message), offset)
            self.incident.append("op_traffic", {**found, "node": self.clocks.nodes(found["rank"])})

    def _queue_pairs(self, pairs: QueuePairs) -> None:
        self.append(
            "qps",
            {
                **pairs.columns(self.cluster),
                "node": self.clocks.nodes(pairs.rank),
                "nic": self._nics_of(pairs.rank),
                "created_ns": self.clocks.shown(pairs.rank, -SETUP_NS + pairs.made_ns),
            },
        )

    def _stalled_pairs(self, slices: Slices, pairs: QueuePairs) -> None:
        found = stalled_pairs(self.played, slices, pairs)
        if found is None:
            return
        rank = pairs.rank[found["flow"]]
        oldest, end = (
            self.clocks.shown(rank, found["oldest"]),
            self.clocks.shown(rank, self.played.until_ns),
        )
        self.append(
            "wr_windows",
            {
                "rank": rank,
                "node": self.clocks.nodes(rank),
                "nic": self._nics_of(rank),
                "qpn": pairs.qpn[found["flow"]],
                "start_ns": oldest,
                "end_ns": end,
                "outstanding": found["outstanding"],
                "oldest_ns": end - oldest,
                "probe": Words(found["lost"].astype(np.int32), ["answered", "lost"]),
            },
        )

    def _known_of_flows(self, pairs: QueuePairs, flow: Ints) -> dict[str, Any]:
        """What a source knows of whom an epoch belongs to: a NIC its queue pair, a shim the
        process, too, and a profiler everything but the queue pair."""
        qpn, rank = {"qpn": pairs.qpn[flow]}, {"job": self.scenario.job, "rank": pairs.rank[flow]}
        if self.scenario.source == "dpa":
            return qpn
        if self.scenario.source == "wr":
            return {**qpn, **rank}
        comms = np.array([c.comm for c in self.cluster.communicators], dtype=np.uint64)
        pair = {"peer": pairs.peer[flow], "channel": pairs.channel[flow]}
        return {**rank, "comm": comms[pairs.comm[flow]], **pair}
