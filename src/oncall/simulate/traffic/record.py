"""Evidence rows of what was played: what host hooks, verbs and NICs would have left."""

from __future__ import annotations

from typing import Any

import numpy as np

from oncall.evidence.incident import Incident, Words
from oncall.simulate.algorithm import Bools, Floats
from oncall.simulate.cluster import Ints, node_name
from oncall.simulate.recorder import EPOCH_NS, STARTUP_NS
from oncall.simulate.traffic import epochs
from oncall.simulate.traffic.host_rows import host_rows
from oncall.simulate.traffic.operations import Calls
from oncall.simulate.traffic.scenario import TrafficScenario
from oncall.simulate.traffic.slices import Slices
from oncall.simulate.traffic.training import Played, rng_of

FIRST_QPN = 0x000100
SETUP_NS = 60e9  # connections are made this long before the first operation


def record(scenario: TrafficScenario, played: Played) -> Incident:
    """All evidence; equal scenarios give equal rows."""
    return _Recorder(scenario, played).record()


class _Recorder:
    """True times come in, what each node's clock showed goes out."""

    def __init__(self, scenario: TrafficScenario, played: Played) -> None:
        self.scenario, self.played, self.cluster = scenario, played, played.cluster
        rng = rng_of(scenario, "clocks")
        limit = scenario.clock_offset_ns
        self.offset_ns: Floats = np.rint(rng.uniform(-limit, limit, scenario.nodes))
        self.clock_errors = rng.uniform(-1, 1, scenario.nodes) * scenario.clock_error_ns
        self.node_names = [node_name(node) for node in range(scenario.nodes)]
        self.nic_names = [f"mlx5_{rail}" for rail in range(scenario.gpus_per_node)]
        self.incident = Incident.empty()

    def record(self) -> Incident:
        self._job()
        self._ranks()
        self._communicators()
        self._clocks()
        self._operations()
        self._traffic()
        if self.scenario.hosts:
            rows = host_rows(self.scenario, self.played, self.offset_ns)
            self.incident.append("hosts", rows)
        return self.incident

    def _shown(self, rank: Ints, true_ns: Floats | float) -> Ints:
        """Unix time on each rank's node at a true moment; 0 for never."""
        moment = np.where(np.isfinite(true_ns), true_ns, -EPOCH_NS)
        shown = moment + self.offset_ns[self.cluster.nodes[rank]]
        return np.where(np.isfinite(true_ns), EPOCH_NS + np.rint(shown).astype(np.int64), 0)

    def _nodes(self, ranks: Ints) -> Words:
        return Words(self.cluster.nodes[ranks].astype(np.int32), self.node_names)

    def _nics(self, ranks: Ints) -> Words:
        return Words(self.cluster.local[ranks].astype(np.int32), self.nic_names)

    def _job(self) -> None:
        s = self.scenario
        told: dict[str, Any] = {"job": [s.job], "world_size": s.world_size}
        if s.trains:
            told |= {name: getattr(s, name) for name in ("tp", "pp", "dp", "micro_batches")}
            told |= {"ep": s.dp if s.workload == "mixtral" else 1, "cp": 1, "schedule": "1F1B"}
        self.incident.append("jobs", {**told, "framework": "simulated"})

    def _ranks(self) -> None:
        ranks = np.arange(self.cluster.world_size)
        local = self.cluster.local[ranks]
        self.incident.append(
            "ranks",
            {
                "job": self.scenario.job,
                "rank": ranks,
                "node": self._nodes(ranks),
                "local_rank": local,
                "gpu": local,
                "pid": 4000 + ranks,
                "nic": self._nics(ranks),
                "started_ns": self._shown(ranks, -STARTUP_NS),
            },
        )

    def _communicators(self) -> None:
        """Names and roles are not told: Pulse infers what a group is for."""
        known = self.cluster.communicators
        sizes = np.array([len(c.members) for c in known])
        self.incident.append(
            "comms",
            {
                "job": self.scenario.job,
                "comm": np.repeat(np.array([c.comm for c in known], dtype=np.uint64), sizes),
                "rank": np.concatenate([c.members for c in known]),
                "comm_rank": np.concatenate([np.arange(size) for size in sizes]),
                "size": np.repeat(sizes, sizes),
            },
        )

    def _clocks(self) -> None:
        nodes = np.arange(self.scenario.nodes)
        ends = EPOCH_NS + np.rint(self.played.until_ns + self.offset_ns).astype(np.int64)
        measured = np.rint(self.offset_ns + self.clock_errors).astype(np.int64)
        names = [self.node_names[node] for node in nodes]
        error = self.scenario.clock_error_ns
        self.incident.append(
            "clocks", {"node": names, "at_ns": ends, "offset_ns": measured, "error_ns": error}
        )

    def _operations(self) -> None:
        """Host calls; on the device only if the scenario says that a plugin told."""
        c, told = self.played.calls, self.scenario.device_times
        done = np.isfinite(c.ended_ns)
        p2p = c.peer >= 0
        rows = {
            "job": self.scenario.job,
            "comm": c.comm,
            "seq": c.seq,
            "rank": c.rank,
            "kind": Words(p2p.astype(np.int32), ["coll", "p2p"]),
            "op": _words(c.op),
            "dtype": "bfloat16",
            "count": c.bytes // 2,
            "bytes": c.bytes,
            "peer": np.ma.MaskedArray(c.peer, mask=~p2p),
            "pair_seq": np.ma.MaskedArray(c.pair_seq, mask=~p2p),
            "group_id": np.ma.MaskedArray(c.group, mask=~p2p),
            "enqueued_ns": self._shown(c.rank, c.enqueued_ns),
            "observed_ns": self._shown(c.rank, self.played.until_ns),
        }
        if told:
            ended = self._shown(c.rank, c.ended_ns)
            entered = self._shown(c.rank, c.entered_ns)
            rows |= {
                "algo": _words(c.algo, empty=True),
                "proto": "SIMPLE",
                "channels": np.where(p2p, 1, self.scenario.channels),
                "started_ns": np.ma.MaskedArray(entered, mask=~np.isfinite(c.entered_ns)),
                "ended_ns": np.ma.MaskedArray(ended, mask=~done),
                "done": done,
            }
        self.incident.append("ops", rows)

    # ------------------------------------------------------------- traffic

    def _traffic(self) -> None:
        rng = rng_of(self.scenario, "measurement")
        slices, is_message = epochs.on_the_wire(self.scenario, self.played.slices, rng)
        pairs = _QueuePairs(self, slices, is_message)
        pairs.write()
        nodes = self.cluster.nodes[slices.sender]
        measured = epochs.measure(self.scenario, slices, pairs.flow, self.offset_ns[nodes], rng)
        rank = pairs.rank[measured.flow]
        by_process = self.scenario.source == "wr"
        self.incident.append(
            "epochs",
            {
                "node": self._nodes(rank),
                "nic": self._nics(rank),
                "qpn": pairs.qpn[measured.flow],
                "start_ns": EPOCH_NS + measured.start_ns,
                "epoch_ns": self.scenario.epoch_ns,
                "bytes": measured.bytes,
                "source": self.scenario.source,
                # A NIC knows no process.
                **({"job": self.scenario.job, "rank": rank} if by_process else {}),
                "undercount": measured.undercount,
            },
        )
        if self.scenario.op_traffic:
            self._op_traffic(slices.where(~is_message))

    def _op_traffic(self, slices: Slices) -> None:
        """Of each rank, peer and operation what its epochs amount to, from the truth."""
        begin_ns, end_ns = epochs.as_seen(self.scenario, slices)
        seen = np.isfinite(end_ns)
        slices, begin_ns, end_ns = slices.where(seen), begin_ns[seen], end_ns[seen]
        world = self.cluster.world_size
        key = (slices.operation * world + slices.sender) * world + slices.peer
        found, index = np.unique(key, return_inverse=True)
        offset = self.offset_ns[self.cluster.nodes[slices.sender]]
        epoch_ns = self.scenario.epoch_ns
        of, number, counted = epochs.spread(
            index, slices.bytes, begin_ns + offset, end_ns + offset, epoch_ns
        )
        there, begin, active = np.unique(of, return_index=True, return_counts=True)
        found = found[there]
        operation, rank, peer = found // world // world, found // world % world, found % world
        end = begin + active - 1
        calls = self.played.calls
        call = _calls_of(calls, operation, rank, peer, world)
        sent = np.bincount(index, self.played.slices.bytes[seen])[there]
        due = self.played.expected
        of_key = (due.operation * world + due.sender) * world + due.peer
        order = np.argsort(of_key)
        expected = due.bytes[order[np.searchsorted(of_key[order], found)]]
        ended = EPOCH_NS + (number[end] + 1) * epoch_ns
        self.incident.append(
            "op_traffic",
            {
                "job": self.scenario.job,
                "comm": calls.comm[call],
                "seq": calls.seq[call],
                "kind": Words((calls.peer[call] >= 0).astype(np.int32), ["coll", "p2p"]),
                "rank": rank,
                "peer": peer,
                "node": self._nodes(rank),
                "algo": _words(calls.algo[call], empty=True),
                "started_ns": EPOCH_NS + number[begin] * epoch_ns,
                "ended_ns": np.ma.MaskedArray(ended, mask=sent < expected - 1),
                "active_ns": active * epoch_ns,
                "bytes": np.add.reduceat(counted, begin),
                "expected_bytes": np.rint(expected).astype(np.int64),
                "epoch_ns": epoch_ns,
                "source": self.scenario.source,
                "undercount": False,
            },
        )


def _calls_of(calls: Calls, operation: Ints, rank: Ints, peer: Ints, world: int) -> Ints:
    """The row of each rank's call that sent to `peer`: its collective, or its Send."""

    def key(operation: Ints, rank: Ints, peer: Ints) -> Ints:
        return (operation * world + rank) * (world + 1) + peer + 1

    sending = np.flatnonzero((calls.operation >= 0) & (calls.op != "Recv"))
    known = key(calls.operation[sending], calls.rank[sending], calls.peer[sending])
    order = np.argsort(known)
    single = np.isin(operation, calls.operation[sending][calls.peer[sending] >= 0])
    wanted = key(operation, rank, np.where(single, peer, -1))
    return sending[order[np.searchsorted(known[order], wanted)]]


class _QueuePairs:
    """A queue pair at either end of every connection: (communicator, sender, receiver, channel)."""

    def __init__(self, recorder: _Recorder, slices: Slices, is_message: Bools) -> None:
        self.recorder = recorder
        cluster = recorder.cluster
        world, channels = cluster.world_size, recorder.scenario.channels
        calls = recorder.played.calls
        comms = np.array([c.comm for c in cluster.communicators], dtype=np.uint64)
        order = np.argsort(comms)
        of_operation = np.zeros(int(calls.operation.max(initial=-1)) + 1, dtype=np.int64)
        there = calls.operation >= 0
        of_operation[calls.operation[there]] = order[
            np.searchsorted(comms[order], calls.comm[there])
        ]
        sender = np.where(is_message, slices.peer, slices.sender)
        receiver = np.where(is_message, slices.sender, slices.peer)
        comm = of_operation[slices.operation]
        key = ((comm * world + sender) * world + receiver) * channels + slices.channel
        found, index = np.unique(key, return_inverse=True)
        self.connections = len(found)
        self.comm = np.repeat(found // channels // world // world, 2)
        left, right = found // channels // world % world, found // channels % world
        # Flow 2 i is the sender's end of connection i, flow 2 i + 1 the receiver's.
        self.flow = 2 * index + is_message
        self.rank = np.stack([left, right], axis=1).ravel()
        self.peer = np.stack([right, left], axis=1).ravel()
        self.qpn = self._number()

    def _number(self) -> Ints:
        """Numbers are handed out by each NIC, some of them to others."""
        cluster = self.recorder.cluster
        nic = cluster.nodes[self.rank] * self.recorder.scenario.gpus_per_node
        nic = nic + cluster.local[self.rank]
        rng = rng_of(self.recorder.scenario, "queue pairs")
        steps = rng.integers(1, 4, len(self.rank))
        numbers = np.empty(len(self.rank), dtype=np.int64)
        for one in np.unique(nic):
            at = np.flatnonzero(nic == one)
            numbers[at] = FIRST_QPN + int(rng.integers(2**12)) + np.cumsum(steps[at])
        return numbers

    def write(self) -> None:
        """As verbs show them: with their peer's address, without the communicator."""
        recorder, cluster = self.recorder, self.recorder.cluster
        if not self.connections:
            return
        gids = [
            f"0000:0000:0000:0000:0000:ffff:0a{cluster.local[p]:02x}:{cluster.nodes[p] + 1:04x}"
            for p in range(cluster.world_size)
        ]
        # Communicators are made one after another.
        made_ns = -SETUP_NS + 2e8 * self.comm + 1e6 * (np.arange(len(self.rank)) % 64)
        other = np.arange(len(self.rank)) ^ 1
        recorder.incident.append(
            "qps",
            {
                "job": recorder.scenario.job,
                "node": recorder._nodes(self.rank),
                "nic": recorder._nics(self.rank),
                "qpn": self.qpn,
                "rank": self.rank,
                "peer_gid": Words(self.peer.astype(np.int32), gids),
                "peer_qpn": self.qpn[other],
                "peer_rank": self.peer,
                "created_ns": recorder._shown(self.rank, made_ns),
                "pid": 4000 + self.rank,
                "state": "rts",
            },
        )


def _words(values: np.ndarray[Any, Any], empty: bool = False) -> Words:
    """Strings by dictionary; "" is NULL if `empty`."""
    vocabulary, found = np.unique(values, return_inverse=True)
    codes = found.astype(np.int32)
    if empty:
        codes[values == ""] = -1
    return Words(codes, [str(word) for word in vocabulary])
