"""What a node's monitors make of standstills and round trips; the limit that none can pass."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from oncall.collect.triggers.in_flight import InFlight
from oncall.collect.triggers.monitor import Policy
from oncall.collect.triggers.node import NodeTriggers
from oncall.units import NS_PER_S

MS = 1_000_000
FLOW = ("a.ring", 0, 1)
LONG_NS = 10 * MS  # a round trip, where the least is 10 us


def sent(operation: int, began_ns: int, posted_ns: int | None) -> InFlight:
    return InFlight(FLOW, operation, began_ns, posted_ns)


def test_what_is_posted_and_never_acknowledged_is_captured_at_once_and_now_and_then() -> None:
    triggers = NodeTriggers(Policy(stall_ns=500 * MS))
    captures = [
        (at_ns, capture.reason)
        for at_ns in range(0, 5 * NS_PER_S, 50 * MS)
        for capture in triggers.look([sent(7, 0, 0)], at_ns)
    ]
    # A third of half a second, as its time is not known, by looks 50 ms apart.
    assert captures == [(550 * MS, "stall"), (750 * MS, "stall"), (950 * MS, "stall")]


def test_flows_that_stand_still_together_are_one_look() -> None:
    triggers = NodeTriggers(Policy(stall_ns=500 * MS))
    sending = [InFlight(("a.ring", 0, peer), 7, 0, 0) for peer in range(40)]
    triggers.look(sending, 0)
    assert len(triggers.look(sending, 600 * MS)) == 40
    assert triggers.limited == 0


def test_who_waits_for_its_gpu_or_for_the_receiver_does_not_stand_still() -> None:
    triggers = NodeTriggers(Policy(stall_ns=500 * MS))
    looks = [triggers.look([sent(7, 0, None)], at) for at in range(0, 5 * NS_PER_S, 50 * MS)]
    assert not any(looks)


def test_a_flow_whose_steps_are_long_stands_still_later() -> None:
    triggers = NodeTriggers(Policy(stall_ns=500 * MS))
    for at_ns in range(0, 2_001 * MS, 50 * MS):
        assert not triggers.look([sent(1, 0, None)], at_ns)
    began_ns = 2_100 * MS
    looks = range(began_ns, began_ns + 3 * NS_PER_S, 50 * MS)
    found = [c for at in looks for c in triggers.look([sent(2, began_ns, began_ns)], at)]
    assert found[0].at_ns - began_ns == 2_050 * MS


def test_a_long_round_trip_counts_while_something_is_sent() -> None:
    triggers = NodeTriggers()
    for at_ns in range(0, 30 * MS, MS):
        assert triggers.pinged("b", at_ns, 10_000) is None
    assert triggers.pinged("b", 40 * MS, LONG_NS) is None  # nothing is being sent
    triggers.look([sent(1, 41 * MS, None)], 50 * MS)
    assert triggers.pinged("b", 51 * MS, 10_000) is None
    capture = triggers.pinged("b", 52 * MS, LONG_NS)
    assert capture is not None and capture.reason == "rtt"
    assert capture.value_ns == LONG_NS > capture.limit_ns
    assert triggers.pinged("new", 53 * MS, LONG_NS) is None  # its least is not known yet


@given(
    events=st.lists(
        st.tuples(st.sampled_from(["look", "ping"]), st.integers(0, 900), st.integers(0, 3)),
        max_size=200,
    )
)
def test_a_node_captures_three_at_once_and_one_a_minute(events: list[tuple[str, int, int]]) -> None:
    triggers = NodeTriggers(Policy(stall_ns=100 * MS))
    for at_ns in range(30):
        triggers.pinged("b", at_ns, 10_000)
    now_ns, captures = 0, 0
    for what, passed_ms, operation in events:
        now_ns += passed_ms * MS
        if what == "look":
            captures += len(triggers.look([sent(operation, now_ns, 0)], now_ns))
        else:
            captures += triggers.pinged("b", now_ns, LONG_NS) is not None
    assert captures <= 3 + now_ns / (60 * NS_PER_S)
