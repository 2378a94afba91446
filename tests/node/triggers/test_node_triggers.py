"""What a node's monitors make of standstills and round trips; the limit that none can pass."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from oncall.core.units import NS_PER_S
from oncall.node.triggers.in_flight import Awaited, Flow, InFlight
from oncall.node.triggers.monitor import HANDOVER_COSTS, Policy
from oncall.node.triggers.node import CAPTURES_AT_ONCE, HANDED_AT_ONCE, NodeTriggers

MS = 1_000_000
FLOW = Flow(0xC0FFEE, 0, 1)
LONG_NS = 10 * MS  # a round trip, where the least is 10 us


def sent(operation: int, began_ns: int, posted_ns: int | None) -> InFlight:
    return InFlight(FLOW, operation, began_ns, posted_ns)


def test_what_is_posted_and_never_acknowledged_is_captured_at_once_and_now_and_then() -> None:
    triggers = NodeTriggers(500 * MS)
    captures = [
        (at_ns, capture.reason)
        for at_ns in range(0, 5 * NS_PER_S, 50 * MS)
        for capture in triggers.look([sent(7, 0, 0)], at_ns)
    ]
    # By looks 50 ms apart; each tells that it has lasted twice as long as the one before.
    assert captures == [(550 * MS, "stall"), (1_150 * MS, "stall"), (2_350 * MS, "stall")]


def test_flows_that_stand_still_together_are_one_look() -> None:
    triggers = NodeTriggers(500 * MS)
    sending = [InFlight(Flow(0xC0FFEE, 0, peer), 7, 0, 0) for peer in range(40)]
    triggers.look(sending, 0)
    assert len(triggers.look(sending, 600 * MS)) == 40
    assert triggers.limited == 0


def test_who_waits_for_its_gpu_or_for_the_receiver_does_not_stand_still() -> None:
    triggers = NodeTriggers(500 * MS)
    looks = [triggers.look([sent(7, 0, None)], at) for at in range(0, 5 * NS_PER_S, 50 * MS)]
    assert not any(looks)


def test_a_flow_whose_steps_are_long_stands_still_later() -> None:
    triggers = NodeTriggers(500 * MS)
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
    triggers = NodeTriggers(100 * MS)
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


# -------------------------------------------------------------------- handing over

COMM = FLOW.comm
BEFORE, AFTER = Flow(COMM, 7, 0), Flow(COMM, 0, 1)  # of rank 0 in a ring of eight
OWED = Awaited(BEFORE, "1", began_ns=0)
STARVED = InFlight(AFTER, 7, 0, None, starved=True)


def left_to(triggers: NodeTriggers, awaited: Awaited, now_ns: int) -> int:
    return sum(triggers.leave_to(to) for to in triggers.waited_for([awaited], now_ns))


def test_who_waits_longer_than_a_step_takes_leaves_all_it_has_to_whom_it_waits_for() -> None:
    triggers = NodeTriggers(500 * MS)
    triggers.look([STARVED], 400 * MS, [OWED])
    assert triggers.waited_for([OWED], 400 * MS) == []  # not late yet
    triggers.look([STARVED], 600 * MS, [OWED])
    assert triggers.waited_for([OWED], 600 * MS) == [OWED]
    assert triggers.leave_to(OWED) == Policy().detections - HANDOVER_COSTS
    assert triggers.waited_for([OWED], 650 * MS) == []  # nothing is left


def test_what_is_left_of_sends_that_are_over_goes_to_who_is_still_waited_for() -> None:
    triggers = NodeTriggers(500 * MS)
    triggers.look([STARVED], 100 * MS, [OWED])
    triggers.look([], 200 * MS, [OWED])
    assert left_to(triggers, OWED, 600 * MS) == Policy().detections - HANDOVER_COSTS
    triggers.look([], 700 * MS)  # it came
    assert left_to(triggers, OWED, 800 * MS) == 0


def test_of_several_the_longest_waited_for_is_reported() -> None:
    triggers = NodeTriggers(500 * MS)
    later = Awaited(Flow(COMM, 3, 0), "1", began_ns=50 * MS)
    triggers.look([STARVED], 700 * MS, [later, OWED])
    assert triggers.waited_for([later, OWED], 700 * MS) == [OWED]


def test_who_has_something_on_the_wire_itself_keeps_what_it_has() -> None:
    triggers = NodeTriggers(500 * MS)
    triggers.look([sent(7, 0, 0)], 300 * MS, [OWED])
    assert triggers.waited_for([OWED], 2 * NS_PER_S) == []
    held_up = InFlight(AFTER, 7, 0, None)  # by its receiver
    triggers.look([held_up], 2 * NS_PER_S, [OWED])
    assert triggers.waited_for([OWED], 2 * NS_PER_S) == []


def test_what_is_handed_lets_the_slow_node_look_longer() -> None:
    def captures(handed: int) -> int:
        triggers = NodeTriggers(500 * MS)
        found = 0
        for at_ns in range(0, 600 * NS_PER_S, 50 * MS):
            found += len(triggers.look([sent(7, 0, 0)], at_ns))
            if at_ns == 600 * MS and handed:
                assert triggers.handed(FLOW, handed)
        return found

    assert captures(0) == CAPTURES_AT_ONCE  # the last when it has stood for 2.4 s
    assert captures(20) > captures(2) > captures(0)


def test_what_is_handed_for_flows_that_are_not_sent_from_here_is_refused() -> None:
    triggers = NodeTriggers()
    assert not triggers.handed(FLOW, 3)
    triggers.look([sent(7, 0, None)], 0)
    assert triggers.handed(FLOW, 3)
    assert not triggers.handed(Flow(COMM, 1, 0), 3)
    triggers.look([], 50 * MS)
    assert not triggers.handed(FLOW, 3)


def test_no_number_of_notifications_captures_anything_by_itself() -> None:
    triggers = NodeTriggers(500 * MS)
    for at_ns in range(0, 10 * NS_PER_S, 50 * MS):
        assert triggers.look([sent(7, 0, at_ns)], at_ns) == []
        triggers.handed(FLOW, 255)


@given(
    events=st.lists(
        st.tuples(st.sampled_from(["look", "ping", "handed"]), st.integers(0, 5_000)),
        max_size=200,
    )
)
def test_whatever_others_hand_over_a_node_captures_no_more_than_nine_at_once(
    events: list[tuple[str, int]],
) -> None:
    triggers = NodeTriggers(100 * MS)
    for at_ns in range(30):
        triggers.pinged("b", at_ns, 10_000)
    now_ns, captures, operation = 0, 0, 1
    for what, passed_ms in events:
        now_ns += passed_ms * MS
        if what == "look":
            operation += passed_ms % 3 == 0
            captures += len(triggers.look([sent(operation, now_ns, 0)], now_ns))
        elif what == "ping":
            captures += triggers.pinged("b", now_ns, LONG_NS) is not None
        else:
            triggers.handed(FLOW, 255)
    at_once = CAPTURES_AT_ONCE + HANDED_AT_ONCE
    assert captures <= at_once + 2 * now_ns / (60 * NS_PER_S)


@settings(max_examples=25)
@given(nodes=st.integers(2, 8), order=st.randoms(use_true_random=False))
def test_what_is_handed_round_in_a_cycle_of_waits_comes_to_an_end(
    nodes: int, order: random.Random
) -> None:
    """Everybody waits for the one before: no more is sent than there were detections."""
    triggers = [NodeTriggers(500 * MS) for _ in range(nodes)]
    reported = 0
    while reported <= Policy().detections * nodes:
        before = reported
        for node in order.sample(range(nodes), nodes):
            to = Awaited(Flow(COMM, (node - 1) % nodes, node), "1", 0)
            own = InFlight(Flow(COMM, node, (node + 1) % nodes), 7, 0, None, starved=True)
            triggers[node].look([own], NS_PER_S, [to])
            for left in [
                triggers[node].leave_to(to) for _ in triggers[node].waited_for([to], NS_PER_S)
            ]:
                triggers[to.flow.src].look(
                    [InFlight(to.flow, 7, 0, None, starved=True)], NS_PER_S, []
                )
                triggers[to.flow.src].handed(to.flow, left)
                reported += 1
        if reported == before:
            break
    assert reported <= Policy().detections * nodes
