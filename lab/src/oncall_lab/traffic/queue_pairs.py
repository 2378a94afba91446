"""Queue pairs: two for every connection, numbered by each NIC, known by their peer's address."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from oncall.evidence.incident import Words
from oncall_lab.arrays import Bools, Floats, Ints
from oncall_lab.recording import FIRST_PID
from oncall_lab.traffic.operations import Calls
from oncall_lab.traffic.play import Played
from oncall_lab.traffic.scenario import TrafficScenario
from oncall_lab.traffic.slices import Slices
from oncall_lab.training.cluster import Cluster

FIRST_QPN = 0x000100


@dataclass(frozen=True)
class QueuePairs:
    """Flow 2 i is the sender's end of connection i, flow 2 i + 1 the receiver's, by which it
    tells of free buffers. comm (its index), rank (its own), peer, channel, qpn, made_ns: (flows,);
    `flow` (slices,): by which each slice goes."""

    comm: Ints
    rank: Ints
    peer: Ints
    channel: Ints
    qpn: Ints
    made_ns: Floats
    flow: Ints

    def columns(self, cluster: Cluster) -> dict[str, Any]:
        """As verbs show them: with their peer's address, without communicator or channel."""
        gids = [
            f"0000:0000:0000:0000:0000:ffff:0a{cluster.local[p]:02x}:{cluster.nodes[p] + 1:04x}"
            for p in range(cluster.world_size)
        ]
        return {
            "qpn": self.qpn,
            "rank": self.rank,
            "peer_gid": Words(self.peer.astype(np.int32), gids),
            "peer_qpn": self.qpn[np.arange(len(self.qpn)) ^ 1],
            "peer_rank": self.peer,
            "pid": FIRST_PID + self.rank,
            "state": "rts",
        }


def connect(
    scenario: TrafficScenario, played: Played, slices: Slices, is_message: Bools
) -> QueuePairs:
    """The queue pairs that these slices need: of each communicator, sender, receiver, channel."""
    world, channels = played.cluster.world_size, scenario.channels
    sender = np.where(is_message, slices.peer, slices.sender)
    receiver = np.where(is_message, slices.sender, slices.peer)
    comm = _communicators(played.cluster, played.calls)[slices.operation]
    key = ((comm * world + sender) * world + receiver) * channels + slices.channel
    found, index = np.unique(key, return_inverse=True)
    left, right = found // channels // world % world, found // channels % world
    rank = np.stack([left, right], axis=1).ravel()
    # Communicators are made one after another, and of one the connections together.
    of_comm = np.repeat(found // channels // world // world, 2)
    made_ns = 2e8 * of_comm + 1e6 * (np.arange(len(rank)) % 64)
    return QueuePairs(
        comm=of_comm,
        rank=rank,
        peer=np.stack([right, left], axis=1).ravel(),
        channel=np.repeat(found % channels, 2),
        qpn=_numbers(scenario, played.cluster, rank),
        made_ns=made_ns,
        flow=2 * index + is_message,
    )


def _communicators(cluster: Cluster, calls: Calls) -> Ints:
    """(operations,): the index of each operation's communicator."""
    comms = np.array([c.comm for c in cluster.communicators], dtype=np.uint64)
    order = np.argsort(comms)
    of_operation = np.zeros(int(calls.operation.max(initial=-1)) + 1, dtype=np.int64)
    there = calls.operation >= 0
    found = np.searchsorted(comms[order], calls.comm[there])
    of_operation[calls.operation[there]] = order[found]
    return of_operation


def _numbers(scenario: TrafficScenario, cluster: Cluster, rank: Ints) -> Ints:
    """Each NIC numbers its own, and gives some numbers to others."""
    rng = scenario.rng("queue pairs")
    nic = cluster.nodes[rank] * scenario.gpus_per_node + cluster.local[rank]
    steps = rng.integers(1, 4, len(rank))
    numbers = np.empty(len(rank), dtype=np.int64)
    for one in np.unique(nic):
        at = np.flatnonzero(nic == one)
        numbers[at] = FIRST_QPN + int(rng.integers(2**12)) + np.cumsum(steps[at])
    return numbers


TIMEOUT_NS = 500e6  # after which a request counts as stalled (VenusTrace)


def stalled_pairs(played: Played, slices: Slices, pairs: QueuePairs) -> dict[str, Any] | None:
    """Columns of `wr_windows` that are no names or instants: `flow`, oldest (true time), counts,
    the empty probe; None if every request was completed."""
    stuck = ~np.isfinite(slices.completed_ns) & (slices.posted_ns < played.until_ns - TIMEOUT_NS)
    if not stuck.any():
        return None
    flow, index = np.unique(pairs.flow[stuck], return_inverse=True)
    oldest: Floats = np.full(len(flow), np.inf)
    np.minimum.at(oldest, index, slices.posted_ns[stuck])
    outstanding: Ints = np.bincount(index)
    down = np.isfinite(played.conditions.links.down_ns)
    lost = down[pairs.rank[flow]] | down[pairs.peer[flow]]
    return {
        "flow": flow,
        "oldest": oldest,
        "outstanding": outstanding,
        "lost": lost,
    }
