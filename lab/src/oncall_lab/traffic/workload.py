"""The five workloads of Pulse 7 and 8: who is in which group, and what an iteration does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from oncall_lab.arrays import Floats, Ints
from oncall_lab.recording import comm_hash
from oncall_lab.traffic.scenario import TrafficScenario
from oncall_lab.training.cluster import Cluster, Communicator, Family, build
from oncall_lab.training.scenario import TrainingScenario
from oncall_lab.training.schedule import Slot, step_slots

# Names of custom collectives; each runs as Sends and Recvs in a group.
CUSTOM = {
    "neighbour_exchange": "NeighbourExchange",
    "all_to_one": "AllToOne",
    "one_to_all": "OneToAll",
}


def lay_out(scenario: TrafficScenario) -> tuple[Cluster, tuple[Slot, ...]]:
    """The cluster, and the operations of one iteration in an order in which they can be played."""
    s = scenario
    mixture = s.workload == "mixtral"
    training = TrainingScenario(
        job=s.job,
        seed=s.seed,
        tp=s.tp,
        pp=s.pp,
        dp=s.dp,
        ep=s.dp if mixture else 1,
        gpus_per_node=s.gpus_per_node,
        channels=s.channels,
        micro_batches=s.micro_batches,
        forward_ns=s.forward_ns,
        tp_bytes=32 * 2**20,
        pp_bytes=s.pp_bytes,
        ep_bytes=s.ep_bytes,
        dp_bytes=s.dp_bytes,
        dp_buckets=s.dp_buckets,
        optimizer_ns=8 * 10**6,
        distributed_optimizer=s.distributed_optimizer,
    )
    cluster = build(training)
    if mixture:
        cluster = _experts_across_nodes(s, cluster)
    if s.trains:
        return cluster, step_slots(training, cluster)
    family = cluster.families["dp", 0]
    lane = (CUSTOM[s.workload],) * family.size
    pause = (2e6,) * family.size  # between one and the next, ns
    return cluster, (Slot(family, (lane,), s.exchange_bytes, pause, s.channels),)


def _experts_across_nodes(scenario: TrafficScenario, cluster: Cluster) -> Cluster:
    """Expert-parallel groups of the same ranks as data-parallel ones: TP8 within a node, EP4
    across (Pulse 7.2.4)."""
    families = dict(cluster.families)
    known = [c for c in cluster.communicators if c.role != "ep"]
    for (role, stage), family in cluster.families.items():
        if role != "dp":
            continue
        made = [_expert_group(scenario, row, i) for i, row in enumerate(family.members)]
        comms = np.array([c.comm for c in made], dtype=np.uint64)
        families["ep", stage] = replace(family, role="ep", comms=comms)
        known += made
    return replace(cluster, families=families, communicators=tuple(known))


def _expert_group(scenario: TrafficScenario, members: Ints, index: int) -> Communicator:
    text = f"{scenario.job}/{scenario.seed}/ep/{members.tolist()}"
    return Communicator(comm_hash(text), "ep", f"ep_{index}", members)


def volumes(family: Family, op: str, size_bytes: int, routing: Floats) -> Floats:
    """(G, n, n): bytes from each member of each group to each member, itself included.

    `routing` (G, n): the share of the tokens that the experts of each member get.
    """
    groups, n = family.members.shape
    whole = np.zeros((groups, n, n))
    if op == "AllToAll":
        whole[:] = size_bytes * routing[:, np.newaxis, :]
    elif op == "AllToAllBack":
        whole[:] = size_bytes * routing[:, :, np.newaxis]
    elif op == "NeighbourExchange":
        # Two dimensions, as square as can be, closed to a torus.
        height = max(h for h in range(1, int(n**0.5) + 1) if n % h == 0)
        width = n // height
        for rank in range(n):
            row, column = divmod(rank, width)
            for near in (
                ((row + 1) % height) * width + column,
                row * width + (column + 1) % width,
                ((row - 1) % height) * width + column,
                row * width + (column - 1) % width,
            ):
                if near != rank:
                    whole[:, rank, near] = size_bytes
    elif op == "AllToOne":
        whole[:, 1:, 0] = size_bytes
    elif op == "OneToAll":
        whole[:, 0, 1:] = size_bytes
    else:
        raise ValueError(f"{op} is no custom collective")
    return np.rint(whole)


def routing(rng: np.random.Generator, groups: int, n: int, imbalance: float) -> Floats:
    """(G, n): shares of the tokens, uneven by `imbalance`; tensor-parallel ranks share a router,
    so that all groups of a stage have the same."""
    weights = np.exp(imbalance * rng.standard_normal(n))
    shares: Floats = np.broadcast_to(weights / weights.sum(), (groups, n))
    return shares
