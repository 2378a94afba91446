"""Operations that completed on no rank, although a dump calls them so: they were aborted.

An abort ends the kernel, which PyTorch takes for completion, and the process ends before its
watchdog could retire the operation. So of what was not retired the other dumps decide: a member
whose last recorded call is an earlier one never entered it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from oncall.importers.flight_recorder.batch import Batch
from oncall.importers.flight_recorder.entries import Array

# None of them completes before all members have called it.
_JOINT = ("AllReduce", "AllGather", "ReduceScatter", "AllToAll", "Barrier")


def reopen_aborted(batches: Sequence[Batch], comms: Sequence[Array]) -> None:
    """Let what was aborted be in flight. `comms` (n,) number the communicators of each batch.

    A member without any call on a communicator says nothing: its ring may have lost them.
    """
    if not batches:
        return
    last_common = _last_common(batches, comms)
    for batch, comm in zip(batches, comms, strict=True):
        column = batch.columns
        joint = np.isin(column["op"], [batch.ops[name] for name in _JOINT])
        aborted = column["held"] & joint & (column["seq"] > last_common[comm])
        column["done"] = column["done"] & ~aborted
        column["ended_ns"] = np.where(aborted, 0, column["ended_ns"])


def _last_common(batches: Sequence[Batch], comms: Sequence[Array]) -> Array:
    """Of each communicator the last collective that all its members with calls have called."""
    most = np.iinfo(np.int64).max
    common = np.full(max(int(comm.max(initial=0)) for comm in comms) + 1, most)
    for batch, comm in zip(batches, comms, strict=True):
        rows = np.flatnonzero(~batch.columns["p2p"])
        here, at = np.unique(comm[rows], return_inverse=True)
        ranks, of = np.unique(batch.columns["rank"][rows], return_inverse=True)
        newest = np.full((len(ranks), len(here)), -1)
        np.maximum.at(newest, (of, at), batch.columns["seq"][rows])
        lowest = np.where(newest < 0, most, newest).min(axis=0, initial=most)
        common[here] = np.minimum(common[here], lowest)
    return common
