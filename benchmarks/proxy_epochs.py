"""How far epochs from transfers of the proxy are from what was on the wire, in the simulator.

    python benchmarks/proxy_epochs.py [SEEDS]

Of each operation, sender and peer: when it began and ended, and its actual communication time, by
epochs of transfers against the simulator's own; and how often the slowest sender of a communicator
is the same.
"""

from __future__ import annotations

import sys

import numpy as np
from numpy.typing import NDArray

from oncall.node.rings.proxy_epochs import spread_transfers
from oncall.node.traffic.epochs import EPOCH_NS, Epochs
from oncall_lab.traffic import TrafficFault, TrafficScenario
from oncall_lab.traffic.epochs import spread
from oncall_lab.traffic.play import play
from oncall_lab.traffic.slices import Slices

SCENARIOS = {
    "GPT-2, healthy": TrafficScenario(workload="gpt2", iterations=3),
    "GPT-2, a PCIe link at half": TrafficScenario(
        workload="gpt2", iterations=3, faults=(TrafficFault("pcie_downgrade", 9, 1),)
    ),
    "Mixtral, a congested path": TrafficScenario(
        workload="mixtral", iterations=3, faults=(TrafficFault("congestion", 9, 1),)
    ),
    "neighbours, a congested path": TrafficScenario(
        workload="neighbour_exchange", iterations=5, faults=(TrafficFault("congestion", 2, 2),)
    ),
}


def by_transfer(slices: Slices, lane: NDArray[np.int64]) -> Epochs:
    """Epochs of each lane as the proxy's transfers tell them: a channel's slices are its steps."""
    width = int(slices.channel.max()) + 1
    transfer, place = np.unique(lane * width + slices.channel, return_inverse=True)
    begun = np.full(len(transfer), np.inf)
    np.minimum.at(begun, place, slices.posted_ns)
    ended = np.zeros(len(transfer))
    np.maximum.at(ended, place, slices.completed_ns)
    sent = np.bincount(place, slices.bytes)
    # The plugin tells waits in whole microseconds.
    wire_ns = np.bincount(place, slices.completed_ns - slices.posted_ns) // 1000 * 1000
    whole = (np.rint(each).astype(np.int64) for each in (begun, ended, sent, wire_ns))
    return spread_transfers(*whole, flow=transfer // width)


def measured(flow: NDArray[np.int64], epoch: NDArray[np.int64], lanes: int) -> NDArray[np.float64]:
    """Begin, end and actual communication time of each lane (3, lanes), microseconds."""
    begin, end = np.full(lanes, np.inf), np.zeros(lanes)
    np.minimum.at(begin, flow, epoch * EPOCH_NS / 1e3)
    np.maximum.at(end, flow, (epoch + 1) * EPOCH_NS / 1e3)
    return np.stack([begin, end, np.bincount(flow, minlength=lanes) * EPOCH_NS / 1e3])


def compare(scenario: TrafficScenario) -> tuple[NDArray[np.float64], list[bool]]:
    """Differences (3, lanes) of long operations, and whether the slowest of each is the same."""
    played = play(scenario)
    slices = played.slices.where(
        np.isfinite(played.slices.completed_ns) & (played.slices.bytes > 0)
    )
    world = played.cluster.world_size
    key = (slices.operation * world + slices.sender) * world + slices.peer
    lanes, lane = np.unique(key, return_inverse=True)
    flow, epoch, _ = spread(lane, slices.bytes, slices.begin_ns, slices.end_ns, EPOCH_NS)
    truth = measured(flow, epoch, len(lanes))
    computed_rows = by_transfer(slices, lane)
    found = measured(computed_rows.flow, computed_rows.epoch, len(lanes))
    long = truth[2] > 10 * EPOCH_NS / 1e3
    same = []
    operation = lanes // world // world
    for number in np.unique(operation[long]):
        mine = np.flatnonzero((operation == number) & long)
        slowest = truth[2][mine]
        if len(mine) > 1 and slowest.max() > 1.15 * np.median(slowest):
            same.append(bool(np.argmax(slowest) == np.argmax(found[2][mine])))
    return np.vstack([(found - truth)[:2, long], (found / truth - 1)[2:, long]]), same


def main() -> None:
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    print("| | begin, us | end, us | actual time, % | slowest sender is the same |")
    print("|---|---|---|---|---|")
    for name, scenario in SCENARIOS.items():
        parts, same = [], []
        for seed in range(seeds):
            found, alike = compare(TrafficScenario(**{**vars(scenario), "seed": seed}))
            parts.append(found)
            same += alike
        off = np.concatenate(parts, axis=1)
        reported = [
            f"{np.median(row):+.0f} ({np.percentile(np.abs(row), 95):.0f})" for row in off[:2]
        ]
        reported.append(
            f"{100 * np.median(off[2]):+.0f} ({100 * np.percentile(abs(off[2]), 95):.0f})"
        )
        print(f"| {name} | {' | '.join(reported)} | {sum(same)} of {len(same)} |")


if __name__ == "__main__":
    main()
