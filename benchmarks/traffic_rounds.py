"""What the source `traffic` costs a node: CPU and memory of finding operations as they come.

    python benchmarks/traffic_rounds.py [QUEUE_PAIRS] [EPOCHS_A_SECOND] [SECONDS]

Eight ranks, each with a ring to one other node; every 100 ms an AllReduce, whose epochs its queue
pairs share.
"""

from __future__ import annotations

import resource
import sys
import time

import numpy as np

from oncall.core.units import NS_PER_S
from oncall.node.store.batch import Batch
from oncall.node.traffic.epochs import EPOCH_NS, Epochs
from oncall.node.traffic.recent_traffic import Flow, RecentTraffic
from oncall.node.traffic.segmenting import Segmenting

RANKS, ROUND_NS, OPERATION_NS = 8, 2 * NS_PER_S, NS_PER_S // 10
NODE, JOB = "gpu001", "llama"
BYTES_AN_EPOCH = 100_000


def flows(pairs: int) -> list[Flow]:
    return [Flow("dpa", NODE, f"mlx5_{number % RANKS}", number // RANKS) for number in range(pairs)]


def current_rows(pairs: int) -> list[Batch]:
    of = flows(pairs)
    ranks = list(range(RANKS))
    comms = {"job": JOB, "comm": np.arange(RANKS, dtype=np.uint64) + 1, "rank": ranks,
             "comm_rank": 0, "size": 2}  # fmt: skip
    qps = {"job": JOB, "node": NODE, "nic": [f.nic for f in of], "qpn": [f.qpn for f in of],
           "rank": [n % RANKS for n in range(pairs)], "peer_gid": [f"::{n % RANKS}" for n in
           range(pairs)], "peer_qpn": [f.qpn for f in of], "created_ns": 0}  # fmt: skip
    return [
        Batch("ranks", RANKS, {"job": JOB, "rank": ranks, "node": NODE}),
        Batch("comms", RANKS, comms),
        Batch("qps", pairs, qps),
    ]


def epochs_of_a_round(begin_ns: int, pairs: int, a_second: int) -> Epochs:
    operations = ROUND_NS // OPERATION_NS
    each = a_second * ROUND_NS // NS_PER_S // operations // pairs
    first = (begin_ns + np.arange(operations) * OPERATION_NS) // EPOCH_NS
    epoch = (first[:, None, None] + np.arange(each)).repeat(pairs, axis=1)
    flow = np.broadcast_to(np.arange(pairs)[None, :, None], epoch.shape)
    size = np.full(epoch.size, BYTES_AN_EPOCH)
    return Epochs(flow.ravel(), epoch.ravel(), size)


def operations_of_a_round(number: int, begin_ns: int, pairs: int, a_second: int) -> Batch:
    operations = ROUND_NS // OPERATION_NS
    each = a_second * ROUND_NS // NS_PER_S // operations // pairs
    sent = each * BYTES_AN_EPOCH * (pairs // RANKS)
    called = np.tile(begin_ns + np.arange(operations) * OPERATION_NS, RANKS)
    rank = np.repeat(np.arange(RANKS), operations)
    columns = {
        "job": JOB, "comm": rank.astype(np.uint64) + 1, "rank": rank, "kind": ["coll"] * len(rank),
        "seq": np.tile(np.arange(operations) + 1 + number * operations, RANKS),
        "op": ["AllReduce"] * len(rank), "bytes": sent, "enqueued_ns": called,
    }  # fmt: skip
    return Batch("ops", len(rank), columns)


def main() -> None:
    pairs, a_second, seconds = (*map(int, sys.argv[1:]), *(128, 200_000, 60)[len(sys.argv) - 1 :])
    recent, segmenting = RecentTraffic(48 * 2**20), Segmenting()
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began_ns, reported, worst_s = time.time_ns(), 0, 0.0
    cpu_s = time.process_time()
    making_s = 0.0
    rounds = seconds * NS_PER_S // ROUND_NS
    for number in range(rounds):
        begin_ns = began_ns + number * ROUND_NS
        making = time.process_time()
        epochs = epochs_of_a_round(begin_ns, pairs, a_second)
        seen = [*current_rows(pairs), operations_of_a_round(number, begin_ns, pairs, a_second)]
        making_s += time.process_time() - making
        recent.add(flows(pairs), epochs, begin_ns + ROUND_NS)
        round_s = time.process_time()
        found = segmenting.advance(seen, recent, begin_ns + ROUND_NS)
        worst_s = max(worst_s, time.process_time() - round_s)
        reported += found.over.rows
    spent_s = time.process_time() - cpu_s - making_s
    after_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(
        f"{pairs} queue pairs, {a_second:,} epochs/s: {100 * spent_s / seconds:.1f} % of a core, "
        f"{worst_s:.2f} s the longest round; {recent.bytes / 2**20:.1f} MiB of epochs, "
        f"{recent.forgotten:,} forgotten; {(after_kib - before_kib) / 1024:.0f} MiB more resident; "
        f"{reported} rows of {rounds * RANKS * ROUND_NS // OPERATION_NS}"
    )


if __name__ == "__main__":
    main()
