"""When a packet left and when it came, by up to three clocks, and the time between.

The NIC's clock leaves out everything of the host, the kernel's (CLOCK_REALTIME) all that a program
waits for its CPU, and the program's own is always there. A clock may be set between two stamps:
the monotonic clock bears every difference out, or it is not used.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Literal, get_args

Clock = Literal["program", "kernel", "nic"]  # from the coarsest to the finest
CLOCKS: tuple[Clock, ...] = get_args(Clock)

_STEP_NS = 20_000  # more between two readings of both clocks is a clock that was set
_TRIES, _TOGETHER_NS = 3, 5_000
_SLEW = 1e-3  # twice what adjtimex(2) may slew a clock by


@dataclass(frozen=True)
class Stamps:
    """One packet passing; all in ns. `program_ns` is CLOCK_MONOTONIC, taken before the program
    sends or after it received; `offset_ns` is what CLOCK_REALTIME was ahead of it then."""

    program_ns: int
    offset_ns: int
    kernel_ns: int | None = None
    nic_ns: int | None = None

    @property
    def realtime_ns(self) -> int:
        return self.kernel_ns or self.program_ns + self.offset_ns

    def with_stamps(self, kernel_ns: int | None, nic_ns: int | None) -> Stamps:
        """The same packet with stamps that were reported later; the first of each kind counts."""
        return replace(self, kernel_ns=self.kernel_ns or kernel_ns, nic_ns=self.nic_ns or nic_ns)


@dataclass(frozen=True)
class Span:
    """A time, and who measured it."""

    ns: int
    clock: Clock


def stamp(kernel_ns: int | None = None, nic_ns: int | None = None) -> Stamps:
    """Now, with what is known of the packet besides."""
    for _ in range(_TRIES):
        program_ns, realtime_ns, after_ns = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        # Interrupted between the two clocks, it would look as if one had been set.
        if after_ns - program_ns < _TOGETHER_NS:
            break
    return Stamps(program_ns, realtime_ns - (program_ns + after_ns) // 2, kernel_ns, nic_ns)


def round_trip(sent: Stamps, received: Stamps) -> Span:
    """From sending to receiving, by the finest clock that says no more than the program saw."""
    program_ns = received.program_ns - sent.program_ns
    nic_ns = _between(sent.nic_ns, received.nic_ns)
    if nic_ns is not None and 0 < nic_ns <= program_ns:
        return Span(nic_ns, "nic")
    kernel_ns = _between(sent.kernel_ns, received.kernel_ns)
    if kernel_ns is not None and 0 < kernel_ns <= program_ns and not _was_set(sent, received):
        return Span(kernel_ns, "kernel")
    return Span(program_ns, "program")


def turnaround(received: Stamps, sent: Stamps) -> Span:
    """From receiving to sending, by the finest clock that says no less than the program saw."""
    program_ns = sent.program_ns - received.program_ns
    nic_ns = _between(received.nic_ns, sent.nic_ns)
    if nic_ns is not None and nic_ns >= program_ns:
        return Span(nic_ns, "nic")
    kernel_ns = _between(received.kernel_ns, sent.kernel_ns)
    if kernel_ns is not None and kernel_ns >= program_ns and not _was_set(received, sent):
        return Span(kernel_ns, "kernel")
    return Span(program_ns, "program")


def coarser(one: Clock, other: Clock) -> Clock:
    """What a difference of two spans is worth."""
    return min(one, other, key=CLOCKS.index)


def _between(first_ns: int | None, last_ns: int | None) -> int | None:
    return None if first_ns is None or last_ns is None else last_ns - first_ns


def _was_set(first: Stamps, last: Stamps) -> bool:
    allowed_ns = _STEP_NS + _SLEW * (last.program_ns - first.program_ns)
    return abs(last.offset_ns - first.offset_ns) > allowed_ns
