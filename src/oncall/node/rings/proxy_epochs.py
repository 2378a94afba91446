"""Transfers of NCCL's proxy as bytes an epoch: where nothing nearer to the wire measures.

The profiler plugin tells of a transfer, what a channel sends to one peer in one operation, when it
began and ended, how much it sent, and for how long its steps were on the wire. Its bytes are spread
over so many epochs between, evenly: sums, begin and end are those of the transfer, and so is the
time with data while one step at a time is on the wire. Where exactly the pauses were is not known;
steps that overlap hide them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from oncall.node.rings.rows import Scale
from oncall.node.traffic.epochs import EPOCH_NS, Epochs, added_up
from oncall.node.traffic.recent_traffic import Flow

Ints = NDArray[np.int64]
_MOST_EPOCHS = 1 << 15  # of one transfer


def spread_transfers(
    begun_ns: Ints, ended_ns: Ints, bytes_: Ints, wire_ns: Ints, flow: NDArray[Any] | None = None
) -> Epochs:
    """The epochs of transfers (n,), each of its flow, its own place by default. `wire_ns`: the
    time of its steps from posting to completion, summed; 0 where steps are not recorded."""
    first, last = begun_ns // EPOCH_NS, np.maximum(ended_ns - 1, begun_ns) // EPOCH_NS
    between = last - first + 1
    span_ns = np.maximum(ended_ns - begun_ns, 1)
    share = np.where(wire_ns > 0, np.minimum(wire_ns / span_ns, 1.0), 1.0)
    most = np.minimum(np.maximum(bytes_, 1), _MOST_EPOCHS)
    active = np.clip(np.rint(share * between).astype(np.int64), 1, np.minimum(between, most))
    stops = np.cumsum(active)
    transfer = np.repeat(np.arange(len(active)), active)
    nth = np.arange(len(transfer)) - np.repeat(stops - active, active)
    of = active[transfer]
    # The first and the last epoch are always among them.
    apart = np.where(of > 1, (between[transfer] - 1) / np.maximum(of - 1, 1), 0.0)
    epoch = first[transfer] + np.rint(nth * apart).astype(np.int64)
    sent = bytes_[transfer] * (nth + 1) // of - bytes_[transfer] * nth // of
    own = np.arange(len(active)) if flow is None else flow
    return added_up(own[transfer], epoch, sent)


def proxy_traffic(
    transfers: NDArray[Any], comms: Any, scale: Scale, node: str
) -> tuple[list[Flow], Epochs]:
    """Flows and epochs of finished sends (TRANSFER_OVER); `comms`: the communicator of each."""
    ends = np.empty(len(transfers), [("comm", "u8"), ("peer", "i4"), ("channel", "i4")])
    for name, values in (("comm", comms), *((n, transfers[n]) for n in ("peer", "channel"))):
        ends[name] = values
    pairs, place = np.unique(ends, return_inverse=True)
    flows = [
        Flow(
            "proxy", node, job=scale.job, rank=scale.rank, comm=int(pair["comm"]),
            channel=int(pair["channel"]), comm_peer=int(pair["peer"]),
        )
        for pair in pairs
    ]  # fmt: skip
    ended_ns = transfers["time_ns"] + scale.offset_ns
    span_ns = transfers["span_us"].astype(np.int64) * 1000
    wire_ns = transfers["last_wait_us"].astype(np.int64) * 1000
    sent = transfers["bytes"].astype(np.int64)
    return flows, spread_transfers(ended_ns - span_ns, ended_ns, sent, wire_ns, place)
