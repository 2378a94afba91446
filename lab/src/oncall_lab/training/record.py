"""What the recorders saw of a training: evidence rows, with skewed clocks, holes and silence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import numpy as np

from oncall.evidence.incident import Incident, Words
from oncall_lab.arrays import Bools, Floats, Ints, changes, lost_runs
from oncall_lab.recording import EPOCH_NS, NodeClocks, Recorder
from oncall_lab.training import transfers
from oncall_lab.training.algorithm import binary_tree
from oncall_lab.training.cluster import memberships
from oncall_lab.training.operations import Call, Frames, Operations, Unroller
from oncall_lab.training.play import Played
from oncall_lab.training.scenario import TrainingScenario

MEAN_RUN = 6  # operations a recorder loses at a time
UNSEALED_NS = 10 * 10**9  # what a crash takes with it
SEALS_SHOWN = 4  # of operations in flight, the rows of so many last seals are there
HOST_LEAD_NS = 40_000.0  # how far the host's call is ahead of the device, at most


class DriftingClocks(NodeClocks):
    """Nodes' clocks that go a little too fast or too slow, beside their offset."""

    def __init__(self, scenario: TrainingScenario, node_of: Ints) -> None:
        super().__init__(scenario, node_of)
        rng, nodes, limit = scenario.rng("clocks"), scenario.nodes, scenario.clock_offset_ns
        self.offset_ns = rng.uniform(-limit, limit, nodes)
        self.drift = rng.normal(0.0, scenario.clock_drift_ppm * 1e-6, nodes)
        self.errors_ns = rng.uniform(-1.0, 1.0, nodes) * scenario.clock_error_ns

    def read(self, nodes: Ints, true_ns: Floats) -> Ints:
        return super().read(nodes, true_ns * (1 + self.drift[nodes]))

    def measured(self, nodes: Ints, until_ns: float) -> dict[str, Any]:
        rows = super().measured(nodes, until_ns)
        offset = rows["at_ns"] - EPOCH_NS - until_ns + self.errors_ns[nodes]
        return {**rows, "offset_ns": np.rint(offset).astype(np.int64)}


def record(scenario: TrainingScenario, played: Played) -> tuple[Incident, NodeClocks]:
    """All evidence of what was played, and the clocks that stamped it."""
    recorder = _Recorder(scenario, played)
    return recorder.record(), recorder.clocks


class _Recorder(Recorder):
    def __init__(self, scenario: TrainingScenario, played: Played) -> None:
        clocks = DriftingClocks(scenario, played.cluster.nodes)
        super().__init__(scenario, clocks, played.until_ns)
        self.scenario, self.played, self.cluster = scenario, played, played.cluster
        for fault in scenario.faults:
            if fault.how == "vanish":
                self.silent[list(fault.ranks)] = True

    def record(self) -> Incident:
        unroller = Unroller(self.scenario, self.played)
        operations, frames = unroller.collect()
        self.calls = unroller.calls
        dropped = _holes(self.scenario, operations)
        kept = ~(dropped | self._lost(operations))
        self._job()
        self._running()
        self._communicators()
        self.incident.append("clocks", self.clocks.measured(self.answered, self.until_ns))
        if self.scenario.recorder == "hooks":
            self._live_operations(operations, kept)
            flying = transfers.in_flight(self.scenario, self.played, unroller.flights)
            self._transfers(chain(transfers.finished(self.scenario, self.played), flying))
        else:
            self._operations(operations, kept, self._seen_until(operations.rank))
            self._frames(operations, frames, kept)
        self.collectors(operations.rank[kept], operations.rank[dropped])
        return self.incident

    def _seen_until(self, rank: Ints) -> Floats:
        """When each rank's node was last asked."""
        rng = self.scenario.rng("answers")
        early = rng.uniform(0, 1, self.scenario.nodes) * self.scenario.answers_within_ns
        until: Floats = self.played.until_ns - early[self.cluster.nodes[rank]]
        return until

    def _job(self) -> None:
        s = self.scenario
        sizes = {name: getattr(s, name) for name in ("tp", "pp", "dp", "ep", "micro_batches")}
        stated = {"world_size": s.world_size, "cp": 1, "schedule": "1F1B", "framework": "simulated"}
        self.incident.append("jobs", {"job": [s.job], **sizes, **stated})

    def _running(self) -> None:
        ranks = np.flatnonzero(~self.silent)
        local = self.cluster.local[ranks]
        buses = [f"0000:{16 + 16 * (int(gpu) % 14):02x}:00.0" for gpu in local]
        self.ranks(ranks, local, self.cluster.local[self.cluster.nic_of[ranks]], pci_bus=buses)

    def _communicators(self) -> None:
        """Every member, as each rank that answers knows all members of its communicators."""
        known = self.cluster.communicators
        sizes = np.array([len(c.members) for c in known])
        depths = [
            binary_tree(len(c.members)).depth
            if c.role in self.scenario.tree
            else np.full(len(c.members), -1)
            for c in known
        ]
        layer = np.concatenate(depths)
        roles = list(dict.fromkeys(c.role for c in known))
        role_codes = np.array([roles.index(c.role) for c in known], dtype=np.int32)
        names = np.arange(len(known), dtype=np.int32)
        self.append(
            "comms",
            {
                **memberships(known),
                "name": Words(np.repeat(names, sizes), [c.name for c in known]),
                "role": Words(np.repeat(role_codes, sizes), roles),
                "tree_layer": np.ma.MaskedArray(layer, mask=layer < 0),
            },
        )

    def _lost(self, operations: Operations) -> Bools:
        """(rows,): rows of ranks that are silent or took their last ones along."""
        lost: Bools = self.silent[operations.rank]
        for effect in self.played.effects:
            if effect.fault.how != "crash":
                continue
            for strike in effect.strikes:
                unsealed = operations.end_ns > strike.at_ns - UNSEALED_NS
                lost |= unsealed & np.isin(operations.rank, strike.ranks)
        return lost

    def _operations(
        self, operations: Operations, kept: Bools, until_ns: Floats, **hidden: Any
    ) -> None:
        """A row is written when its operation ends, or at `until_ns` (rows,) while in flight."""
        lead = self.scenario.rng("host").uniform(0.1, 1.0, len(kept))[kept] * HOST_LEAD_NS
        pairs = self._pair_numbers(operations)
        o, until_ns = operations.where(kept), until_ns[kept]
        done = o.done & (o.end_ns <= until_ns)
        observed = self.clocks.shown(o.rank, np.where(done, o.end_ns, until_ns))
        self.append(
            "ops",
            {
                "comm": o.comm,
                "seq": o.seq,
                "rank": o.rank,
                **_call_columns(self.calls, o.call),
                "peer": np.ma.MaskedArray(o.peer, mask=o.peer < 0),
                "pair_seq": np.ma.MaskedArray(pairs[kept], mask=pairs[kept] == 0),
                "group_id": np.ma.MaskedArray(o.group_id, mask=o.group_id < 0),
                "enqueued_ns": self.clocks.shown(o.rank, o.arrival_ns - lead),
                "started_ns": self.clocks.shown(o.rank, o.arrival_ns),
                "ended_ns": np.ma.MaskedArray(observed, mask=~done),
                "done": done,
                "sends": o.sends,
                "recvs": o.recvs,
                "send_rate": np.ma.masked_invalid(o.send_rate),
                "recv_rate": np.ma.masked_invalid(o.recv_rate),
                "observed_ns": observed,
                **hidden,
            },
        )

    def _pair_numbers(self, operations: Operations) -> Ints:
        """(rows,): the number of each Send or Recv of its pair; 0 for others, and after a loss."""
        numbers = np.zeros(len(operations.seq), dtype=np.int64)
        rows = np.flatnonzero(operations.peer >= 0)
        if self.scenario.recorder != "hooks" or self.scenario.holes or not len(rows):
            return numbers
        names = ("seq", "peer", "call", "rank", "comm")
        keys = [getattr(operations, name)[rows] for name in names]
        order = np.lexsort(keys)
        new = changes(*(key[order] for key in keys[1:]))
        place = np.arange(len(rows))
        numbers[rows[order]] = place - np.maximum.accumulate(np.where(new, place, 0)) + 1
        return numbers

    def _live_operations(self, operations: Operations, kept: Bools) -> None:
        """What our hooks write: a row at every seal an operation was in flight at, then its end.

        Only steps over the network are counted, so not all ranks have them, and none is known of
        what had ended when its node was asked last but not when the training did.
        """
        until_ns = self._seen_until(operations.rank)
        unknown = {"sends": None, "recvs": None, "send_rate": None, "recv_rate": None}
        seal_ns = self.scenario.seal_every_ns
        seals = np.arange(seal_ns, self.played.until_ns, seal_ns)
        for moment in seals[-SEALS_SHOWN:]:
            flying = (operations.arrival_ns <= moment) & (operations.end_ns > moment)
            flying &= moment < until_ns
            self._operations(
                operations, kept & flying, np.full(len(kept), float(moment)), **unknown
            )
            self._boards(operations, kept, np.minimum(until_ns, moment))
        began = operations.arrival_ns <= until_ns
        self._operations(operations, kept & began, until_ns, **unknown)
        self._boards(operations, kept, until_ns)

    def _boards(self, operations: Operations, kept: Bools, until_ns: Floats) -> None:
        """How many collectives each rank had entered and completed on each communicator."""
        collective = np.array([call.kind == "coll" for call in self.calls])
        o = operations.where(kept & collective[operations.call])
        until_ns = until_ns[kept & collective[operations.call]]
        places, member = np.unique(np.stack([o.comm, o.rank.astype(np.uint64)]), axis=1,
                                   return_inverse=True)  # fmt: skip
        counts = np.zeros((2, places.shape[1]), dtype=np.int64)
        for count, began in zip(counts, (o.arrival_ns, o.end_ns), strict=True):
            then = began <= until_ns
            np.maximum.at(count, member[then], o.seq[then])
        ranks = places[1].astype(np.int64)
        seen_ns = np.zeros(places.shape[1])
        seen_ns[member] = until_ns
        self.append(
            "launches",
            {
                "comm": places[0],
                "rank": ranks,
                "at_ns": self.clocks.shown(ranks, seen_ns),
                "launched": counts[0],
                "completed": counts[1],
                "state": "running",
                "source": "board",
            },
        )

    def _transfers(self, rows: Iterable[transfers.Row]) -> None:
        """Transfers of ranks that answer; each is written again at the end while in flight."""
        asked_ns = self._seen_until(np.arange(self.cluster.world_size))
        seen = [
            row
            for row in rows
            if row.started_ns <= asked_ns[row.rank] and not self.silent[row.rank]
        ]
        columns: dict[str, Any] = dict(transfers.columns_of(seen))
        rank = np.array(columns["rank"], dtype=np.int64)
        for name in ("since_ns", "started_ns"):
            columns[name] = self.clocks.shown(rank, np.array(columns[name], dtype=np.float64))
        over = np.array([value is not None for value in columns["ended_ns"]], dtype=np.bool_)
        columns["ended_ns"] = np.ma.MaskedArray(columns["since_ns"], mask=~over)
        observed = self.clocks.shown(rank, asked_ns[rank])
        self.append("transfers", {"observed_ns": observed, **columns})

    def _frames(self, operations: Operations, frames: Frames, kept: Bools) -> None:
        """The probing frames of what is in flight at the end (CCL-D 5.1)."""
        seen = kept[frames.row]
        rows = frames.row[seen]
        rank = operations.rank[rows]
        self.append(
            "op_channels",
            {
                "comm": operations.comm[rows],
                "seq": operations.seq[rows],
                "rank": rank,
                "channel": frames.channel[seen],
                "sends": frames.sends[seen],
                "recvs": frames.recvs[seen],
                "observed_ns": self.clocks.shown(rank, self.played.until_ns),
            },
        )


def _holes(scenario: TrainingScenario, operations: Operations) -> Bools:
    """(rows,): runs of rows of one rank, lost when its ring was full.

    What is in flight is written again at each seal, so it is not lost for good.
    """
    lost = np.zeros(len(operations.rank), dtype=np.bool_)
    if not scenario.holes:
        return lost
    rng = scenario.rng("holes")
    order = np.argsort(operations.rank, kind="stable")
    lost[order] = lost_runs(rng, len(order), scenario.holes, MEAN_RUN)
    return lost & operations.done


def _call_columns(calls: Sequence[Call], of: Ints) -> dict[str, Any]:
    """The columns that say what was called, looked up by call."""

    def words(values: list[str]) -> Words:
        vocabulary = list(dict.fromkeys(values))
        codes = np.array([vocabulary.index(value) for value in values], dtype=np.int32)
        return Words(codes[of], vocabulary)

    def numbers(values: list[int]) -> Ints:
        return np.array(values, dtype=np.int64)[of]

    return {
        "kind": words([call.kind for call in calls]),
        "op": words([call.shape.op for call in calls]),
        "dtype": words([call.dtype for call in calls]),
        "count": numbers([call.count for call in calls]),
        "bytes": numbers([call.shape.size_bytes for call in calls]),
        "algo": words([call.shape.algo for call in calls]),
        "proto": words([call.shape.protocol for call in calls]),
        "channels": numbers([call.shape.channels for call in calls]),
    }
