"""Slices as they are measured: bytes in epochs, with all that measurement adds and loses.

A NIC's processor counts what it transmits (dpa): packet headers and packets sent again come on top
of the payload. A shim sees work requests posted and completed, and spreads their bytes evenly in
between (wr); so does a profiler with the steps of proxy threads (proxy), which knows operation and
peer, but not the messages that tell a sender of free buffers. A counter of the DPA has 16 bits in
units of 32 bytes (more for longer epochs) and stays at its largest value (Pulse 4.3). Where events
were lost, what is left of the queue pair's page is flagged as an undercount.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oncall_lab.arrays import Bools, Floats, Ints, lost_runs
from oncall_lab.traffic.scenario import TrafficScenario
from oncall_lab.traffic.slices import Slices

UNIT_BYTES = 32  # of a counter of the DPA, for epochs of up to 32 us
UNIT_EPOCH_NS = 32_000
SYNC_BYTES = 64  # tells of one free buffer
REPEATED = 0.1  # of a slice, where a packet was lost: what was under way then
LOST_RUN = 8  # epochs that are lost at a time, on average
PAGE_NS = 32_768_000  # of a mailbox reply: 1,024 epochs of 32 us


@dataclass(frozen=True)
class Epochs:
    """Epochs with bytes, by flow, then by start: arrays of one length n."""

    flow: Ints
    start_ns: Ints
    bytes: Ints
    undercount: Bools


def on_the_wire(
    scenario: TrafficScenario, slices: Slices, rng: np.random.Generator
) -> tuple[Slices, Bools]:
    """Slices with all that comes on top of their payload, and which of them are messages from the
    receiver to the sender."""
    data = slices
    if scenario.source == "dpa":
        repeated = rng.random(len(slices)) < scenario.retransmissions / REPEATED
        factor = (1 + scenario.headers) * np.where(repeated, 1 + REPEATED, 1.0)
        data = replace(slices, bytes=slices.bytes * factor)
    if not scenario.sync_messages or scenario.source == "proxy":
        return data, np.zeros(len(data), dtype=np.bool_)
    # A receiver's message of a free buffer comes as the slice before has been taken.
    large = slices.where(slices.bytes >= 0.5 * scenario.slice_bytes)
    moment = large.end_ns
    messages = Slices(
        operation=large.operation,
        sender=large.peer,
        peer=large.sender,
        channel=large.channel,
        bytes=np.full(len(large), float(SYNC_BYTES)),
        posted_ns=moment,
        begin_ns=moment,
        end_ns=moment + 100.0,
        completed_ns=moment + 4_000.0,
    )
    is_message = np.arange(len(data) + len(messages)) >= len(data)
    return Slices.joined([data, messages]), is_message


def as_seen(scenario: TrafficScenario, slices: Slices) -> tuple[Floats, Floats]:
    """From when to when the scenario's source sees each slice; infinity: it never saw the end."""
    if scenario.source != "dpa":
        return slices.posted_ns, slices.completed_ns
    return slices.begin_ns, slices.end_ns


def spread(
    flow: Ints, bytes_: Floats, begin_ns: Floats, end_ns: Floats, epoch_ns: int
) -> tuple[Ints, Ints, Ints]:
    """(flow, epoch number, bytes) of all epochs with bytes, by flow, then by number.

    Each interval's bytes are spread evenly over its time; of every interval the parts, which are
    whole, add up to the whole.
    """
    first = np.floor(begin_ns / epoch_ns).astype(np.int64)
    last = np.maximum(np.ceil(end_ns / epoch_ns).astype(np.int64) - 1, first)
    counts = last - first + 1
    row = np.repeat(np.arange(len(flow)), counts)
    within = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
    number = first[row] + within
    length = np.maximum(end_ns - begin_ns, 1.0)
    whole = np.rint(bytes_).astype(np.int64)

    def until(moment: NDArray[Any]) -> Ints:
        share = np.clip((moment - begin_ns[row]) / length[row], 0.0, 1.0)
        return np.floor(whole[row] * share).astype(np.int64)

    upper = np.where(number == last[row], whole[row], until((number + 1.0) * epoch_ns))
    lower = np.where(within == 0, 0, until(number * float(epoch_ns)))
    amount = upper - lower
    if not len(row):
        return row, row, row
    base = int(number.min())
    width = int(number.max()) - base + 1
    key, index = np.unique(flow[row] * width + (number - base), return_inverse=True)
    total = np.bincount(index, amount, minlength=len(key)).astype(np.int64)
    there = total > 0
    return key[there] // width, key[there] % width + base, total[there]


def measure(
    scenario: TrafficScenario, slices: Slices, flow: Ints, offset_ns: Floats,
    rng: np.random.Generator,
) -> Epochs:  # fmt: skip
    """Epochs of every flow (queue pair), in ns of the node's clock since the job began.

    flow, offset_ns (slices,): the flow of each slice, and how far its node's clock is ahead.
    """
    begin, end = as_seen(scenario, slices)
    over = np.isfinite(end)
    slices, flow, offset_ns = slices.where(over), flow[over], offset_ns[over]
    begin, end = begin[over], end[over]
    of, number, counted = spread(
        flow, slices.bytes, begin + offset_ns, end + offset_ns, scenario.epoch_ns
    )
    lower_bound = np.zeros(len(of), dtype=np.bool_)
    if scenario.source == "dpa":
        unit_bytes = UNIT_BYTES * -(-scenario.epoch_ns // UNIT_EPOCH_NS)
        units = np.maximum(1, (counted + unit_bytes // 2) // unit_bytes)
        lower_bound = units > 65_535
        counted = np.minimum(units, 65_535) * unit_bytes
    start = number * scenario.epoch_ns
    if not scenario.lost_epochs:
        return Epochs(of, start, counted, lower_bound)
    lost = lost_runs(rng, len(of), scenario.lost_epochs, LOST_RUN)
    lower_bound = (lower_bound | _on_pages_with_loss(of, start, lost))[~lost]
    return Epochs(of[~lost], start[~lost], counted[~lost], lower_bound)


def _on_pages_with_loss(flow: Ints, start_ns: Ints, lost: Bools) -> Bools:
    """(rows,): the NIC knows by a gap in event numbers that a page lacks something, not what."""
    page = np.stack([flow, start_ns // PAGE_NS], axis=1)
    _, index = np.unique(page, axis=0, return_inverse=True)
    index = index.ravel()
    marked = np.zeros(int(index.max()) + 1 if len(index) else 0, dtype=np.bool_)
    marked[index[lost]] = True
    flagged: Bools = marked[index]
    return flagged
