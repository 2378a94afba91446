"""Which clock is believed: laws of times between stamps, and clocks that are set in between."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from oncall.node.ping.stamped_socket import Stamps, round_trip, turnaround

NOW_NS = 1_795_000_000 * 10**9
instants = st.integers(0, 10**12)
maybe = st.none() | st.integers(NOW_NS, NOW_NS + 10**12)
stamps = st.builds(Stamps, instants, st.just(NOW_NS), maybe, maybe)


def packet(program_ns: int, *, late_ns: int = 0, offset_ns: int = NOW_NS) -> Stamps:
    """A packet that the kernel stamped `late_ns` after the program."""
    return Stamps(program_ns, offset_ns, program_ns + offset_ns + late_ns)


@given(stamps, stamps)
def test_a_round_trip_is_never_longer_than_the_program_saw(sent: Stamps, received: Stamps) -> None:
    program_ns = received.program_ns - sent.program_ns
    span = round_trip(sent, received)
    assert span.ns == program_ns if span.clock == "program" else 0 < span.ns <= program_ns


@given(stamps, stamps)
def test_a_turnaround_is_never_shorter_than_the_program_saw(received: Stamps, sent: Stamps) -> None:
    assert turnaround(received, sent).ns >= sent.program_ns - received.program_ns


def test_the_nic_counts_before_the_kernel_and_its_clock_may_be_any() -> None:
    sent = Stamps(1_000, NOW_NS, NOW_NS + 2_000, nic_ns=7)
    received = Stamps(50_000, NOW_NS, NOW_NS + 40_000, nic_ns=10_007)
    assert (round_trip(sent, received).ns, round_trip(sent, received).clock) == (10_000, "nic")


def test_a_clock_that_was_set_within_a_ping_is_not_believed() -> None:
    for step_ns in (-(10**9), -40_000, 40_000, 10**9):
        sent = packet(0, late_ns=1_000)
        received = packet(500_000, late_ns=-1_000, offset_ns=NOW_NS + step_ns)
        assert round_trip(sent, received).clock == "program"
        assert round_trip(sent, received).ns == 500_000
        assert turnaround(sent, received).clock == "program"
