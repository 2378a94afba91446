"""Operations found in traffic: how fast, and how much faster than the paper's loop in Python.

    python benchmarks/segmentation.py

2,000 queue pairs, one second of 32 us epochs each (Pulse 4.3), some hundred operations a flow.
Both run on the same epochs in the same process; the loop sees a part of them.
"""

from __future__ import annotations

import time

import numpy as np

from oncall.analysis.traffic.segmentation import Traffic, segment

FLOWS, EPOCH_NS, SECOND_NS = 2_000, 32_000, 10**9
OPERATIONS, GAP_NS, EPOCH_BYTES = 100, 1_000_000, 100_000
LOOP_FLOWS = 40


def traffic(seed: int = 0) -> tuple[Traffic, int]:
    """Flows busy for four fifths of the time, in operations that lie apart; and their volume."""
    draw = np.random.default_rng(seed)
    slots = SECOND_NS // EPOCH_NS // OPERATIONS
    busy = slots * 4 // 5
    number = np.arange(OPERATIONS)[:, None] * slots + np.arange(busy)
    start = np.tile(number.ravel() * EPOCH_NS, FLOWS)
    sent = draw.integers(EPOCH_BYTES // 2, EPOCH_BYTES, len(start))
    flow = np.repeat(np.arange(FLOWS), number.size)
    return Traffic(flow, start, sent, EPOCH_NS), busy * EPOCH_BYTES // 2


def loop(start_ns: list[int], sent: list[int], size: int) -> int:
    """Pulse's Algorithm 1 as printed; returns how many operations it found."""
    ends, last, volume = 0, 0, 0
    for at, much in zip(start_ns, sent, strict=True):
        if at - last >= GAP_NS and volume >= size:
            ends += 1
            volume = 0
        last, volume = at, volume + much
    return ends


def main() -> None:
    """Print both figures and their ratio."""
    epochs, size = traffic()
    owner = np.repeat(np.arange(FLOWS), OPERATIONS)
    sizes = np.full(len(owner), size)
    took = []
    for _ in range(5):
        began = time.perf_counter()
        found = segment(epochs, owner, sizes, GAP_NS)
        took.append(time.perf_counter() - began)
    assert found.complete.all()
    each = len(epochs.flow) // FLOWS
    part = slice(0, each * LOOP_FLOWS)
    starts = epochs.start_ns[part].reshape(LOOP_FLOWS, each).tolist()
    sent = epochs.bytes[part].reshape(LOOP_FLOWS, each).tolist()
    began = time.perf_counter()
    for one_start, one_sent in zip(starts, sent, strict=True):
        loop(one_start, one_sent, size)
    loop_s = time.perf_counter() - began
    best, rows = min(took), len(epochs.flow)
    loop_rate = each * LOOP_FLOWS / loop_s
    print(f"{FLOWS:,} flows x 1 s: {rows:,} epochs, {len(owner):,} operations")
    print(f"all at once {best:.3f} s ({rows / best / 1e6:.1f} million epochs a second)")
    print(f"loop in Python {loop_rate / 1e6:.1f} million epochs a second")
    print(f"ratio {rows / best / loop_rate:.1f}")


if __name__ == "__main__":
    main()
