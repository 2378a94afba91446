"""A flow's monitor: no capture without a reason, no more than the budget, handed on as it waits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from oncall.node.triggers.monitor import (
    HANDOVER_COSTS,
    Begun,
    Capture,
    Handover,
    Message,
    Monitor,
    Policy,
)

POLICY = Policy(detections=3, most=12)
BEFORE = Message(3, 1)  # what the next send needs

EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["begin", "measured", "moved", "look", "end", "handed", "came", "wait"]),
        st.integers(0, 700),
    ),
    max_size=80,
)


def begun(step: int = 1, at_ns: float = 0.0) -> Begun:
    return Begun(step, at_ns, expected_ns=300.0, threshold_ns=100.0, stall_ns=500.0)


@given(events=EVENTS)
def test_every_capture_has_its_reason_and_its_place_in_the_budget(
    events: list[tuple[str, int]],
) -> None:
    monitor = Monitor(POLICY)
    now_ns, step, moved_ns = 0.0, 0, 0.0
    is_open = False
    captures: list[Capture] = []
    added = handed = 0
    for what, amount in events:
        now_ns += amount
        capture: Capture | None = None
        passed: Handover | None = None
        if what == "begin":
            step, moved_ns, is_open, captures, added = step + 1, now_ns, True, [], 0
            monitor.begin(begun(step, now_ns))
        elif what == "measured":
            capture = monitor.measured(now_ns, amount)
            assert capture is None or amount > 100
        elif what == "moved":
            moved_ns = now_ns
            monitor.moved(now_ns)
        elif what == "look":
            capture = monitor.look(now_ns)
            assert capture is None or now_ns - moved_ns > 500
        elif what == "end":
            passed, is_open = monitor.end((BEFORE,)), False
        elif what == "handed":
            added += amount if is_open else 0
            passed = monitor.handed(step, amount)
            assert passed is None or passed.detections <= amount - HANDOVER_COSTS
        elif what == "wait":
            left = monitor.left
            waits = monitor.wait(BEFORE)
            assert left == (waits.detections if waits is not None else 0)
            assert monitor.left == 0
            assert waits is None or is_open
        else:
            monitor.came(BEFORE)
        if capture is not None:
            assert is_open and capture.step == step and capture.value_ns > capture.limit_ns
            captures.append(capture)
        if passed is not None:
            handed += passed.detections
            assert not is_open and passed.detections > 0
        assert len(captures) <= min(3 + added, POLICY.most) + 1  # one is kept for a standstill
        assert sum(each.reason == "rtt" for each in captures) <= min(3 + added, POLICY.most)


@given(
    rtts=st.lists(st.integers(0, 1_000), max_size=12),
    last_ns=st.integers(0, 400),
    times=st.integers(1, 5),
)
def test_a_flow_that_stands_still_is_captured_at_the_first_look(
    rtts: list[int], last_ns: int, times: int
) -> None:
    """However much of the budget long round trips have taken, and however lately."""
    monitor = Monitor(POLICY)
    monitor.begin(begun())
    for rtt_ns in rtts:
        monitor.measured(float(last_ns), rtt_ns)
    monitor.moved(last_ns)
    assert monitor.look(last_ns + 500) is None
    capture = monitor.look(last_ns + 500 + times)
    assert capture == Capture(1, last_ns + 500 + times, "stall", 500 + times, 500)


def test_a_standstill_that_goes_on_is_looked_at_as_long_as_the_budget_lasts() -> None:
    monitor = Monitor(POLICY)
    monitor.begin(begun())
    captures = [at_ns for at_ns in range(0, 5_000, 10) if monitor.look(at_ns)]
    assert captures == [510, 1030, 2070, 4150]  # each tells that it lasts twice as long


def test_a_long_step_is_no_standstill_before_its_time() -> None:
    monitor = Monitor(POLICY)
    monitor.begin(Begun(1, 0.0, expected_ns=2_000.0, threshold_ns=100.0, stall_ns=2_000.0))
    assert monitor.look(1_999) is None
    assert monitor.look(2_001) is not None


def test_a_step_that_moves_and_is_not_over_is_late_however_short_its_round_trips() -> None:
    monitor = Monitor(POLICY)
    monitor.begin(Begun(1, 0.0, 300.0, threshold_ns=100.0, stall_ns=500.0, late_ns=360.0))
    captures = [monitor.measured(float(at_ns), 50) for at_ns in range(0, 2_000, 10)]
    reported = [(each.at_ns, each.reason, each.limit_ns) for each in captures if each is not None]
    assert reported == [(370, "late", 360), (470, "late", 360), (570, "late", 360)]


def test_a_standstill_that_ended_is_captured_again_when_it_comes_again() -> None:
    monitor = Monitor(POLICY)
    monitor.begin(begun())
    assert monitor.look(501) is not None
    monitor.moved(600)
    assert monitor.look(1_100) is None
    assert monitor.look(1_101) is not None


@given(
    took_ns=st.lists(st.integers(300, 3_000), min_size=3, max_size=8),
    long_trips=st.data(),
)
def test_of_a_ring_the_slowest_flow_gets_what_all_that_wait_for_it_left(
    took_ns: list[int], long_trips: st.DataObject
) -> None:
    """One step of a ring, as in figure 7: all in all there are as many detections as at first, less
    what handing them over cost."""
    members = len(took_ns)
    monitors = [Monitor(Policy(detections=3, most=3 * members)) for _ in took_ns]
    for monitor in monitors:
        monitor.begin(begun())
    captured = [0] * members
    received = [0] * members  # detections
    came: set[Message] = set()
    for now_ns, member in sorted((took, member) for member, took in enumerate(took_ns)):
        if long_trips.draw(st.booleans()):
            captured[member] += monitors[member].measured(now_ns - 1, 200) is not None
        message = Message(member, 1)
        after = (member + 1) % members
        came.add(message)
        monitors[after].came(message)
        needed = Message((member - 1) % members, 1)  # a ring's next step sends on what came
        passed = monitors[member].end(() if needed in came else (needed,))
        while passed is not None:
            to = passed.message.src
            received[to] += passed.detections
            assert passed.detections <= 3 * members
            passed = monitors[to].handed(1, passed.detections)
    assert sum(captured) <= 3 * members
    slowest = max(range(members), key=lambda member: (took_ns[member], member))
    waits = (slowest + 1) % members
    assert received[slowest] >= 3 - captured[waits] - HANDOVER_COSTS
