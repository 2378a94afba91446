"""A collective as hosts' own NICs see it: one operation, and the epochs in which each rank sent.

What a collector makes of it (`op_traffic`) is written along, so that steps must be found in the
epochs again: nobody tells them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from oncall_lab.network.host_counters import NIC
from oncall_lab.network.play import Played

STEP_BYTES = 2 << 20  # of a channel: half of its buffer of 4 MiB (NCCL's SIMPLE protocol)


def traffic_tables(played: Played, comm: int) -> list[tuple[str, dict[str, Any]]]:
    """Rows of ops, op_traffic and epochs of a ring; times in nanoseconds after the begin."""
    plan, legs = played.plan, played.legs
    members = len(plan.messages.pairs)
    src, dst = np.array(plan.messages.pairs).T
    nodes = np.array([plan.tree.name(host) for host in plan.hosts])
    flows = np.arange(members)
    sent = played.counts.arrived[:, np.minimum(legs.first[flows] + 1, legs.last[flows])]
    epochs, flow = np.nonzero(np.rint(sent) > 0)
    epoch_ns = round(played.epoch_ns)
    size = np.rint(sent[epochs, flow]).astype(np.int64)
    begun = np.full(members, len(sent), np.int64)
    over = np.zeros(members, np.int64)
    np.minimum.at(begun, flow, epochs)
    np.maximum.at(over, flow, epochs + 1)
    open_ = np.bincount(plan.messages.flow, np.isnan(played.progress.ended_ns)) > 0
    recorded = {
        "job": played.scenario.job,
        "comm": np.full(members, comm, np.uint64),
        "seq": 0,
        "rank": src,
        "kind": "coll",
        "op": played.scenario.op,
        "algo": "RING",
        "bytes": np.bincount(plan.messages.flow, plan.messages.bytes).astype(np.int64),
        "started_ns": begun * float(epoch_ns),
        "ended_ns": np.where(open_, np.nan, over * float(epoch_ns)),
    }
    channels = math.ceil(played.scenario.step_bytes / STEP_BYTES)
    found = {"peer": dst, "node": nodes[src], "nic": NIC, "epoch_ns": epoch_ns, "source": "dpa"}
    return [
        ("ops", {**recorded, "proto": "SIMPLE", "channels": channels}),
        ("op_traffic", {**recorded, **found}),
        (
            "epochs",
            {
                "job": played.scenario.job,
                "node": nodes[src[flow]],
                "nic": NIC,
                "qpn": flow + 1,
                "rank": src[flow],
                "comm": np.full(len(flow), comm, np.uint64),
                "peer": dst[flow],
                "start_ns": epochs * float(epoch_ns),
                "epoch_ns": epoch_ns,
                "bytes": size,
                "source": "dpa",
            },
        ),
    ]
