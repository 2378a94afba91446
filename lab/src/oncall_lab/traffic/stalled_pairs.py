"""Queue pairs that are stalled at the end: what a shim of verbs says of requests nobody completes.

A NIC that is down completes neither what its rank posted nor what others posted towards it. Of
both the shim knows the bytes that were completed only, so the volumes are alike; but the stalled
requests have the rank at one end each, and an empty probe to its port is lost.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oncall_lab.traffic.play import Played
from oncall_lab.traffic.queue_pairs import QueuePairs
from oncall_lab.traffic.slices import Slices
from oncall_lab.training.algorithm import Floats
from oncall_lab.training.cluster import Ints

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
