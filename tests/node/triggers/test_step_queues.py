"""Whom a member waits for, after Table I, for every algorithm that is taken apart."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from oncall.node.triggers.decomposition import ALGORITHMS, NONE, Message, decompose, queues_of


@given(
    which=st.sampled_from(sorted(ALGORITHMS)), halves=st.integers(1, 4), member=st.integers(0, 15)
)
def test_a_member_waits_for_what_it_needs_until_it_has_come(
    which: tuple[str, str], halves: int, member: int
) -> None:
    members = 1 << halves
    member %= members
    steps = decompose(*which, members)
    queues = queues_of(*which, members, member)
    mine = [n for n in range(len(steps)) if steps.src[n] == member]
    assert sorted((send.step, send.dst) for send in queues.sends) == sorted(
        (int(steps.step[n]), int(steps.dst[n])) for n in mine
    )
    for step in sorted({send.step for send in queues.sends}):
        needed = {
            Message(int(steps.src[need]), int(steps.step[need]))
            for n in mine
            if steps.step[n] == step
            for need in steps.needs[n]
            if need != NONE
        }
        assert set(queues.awaited_after(step - 1)) == needed
        for message in needed:
            queues.came(message)
        assert queues.awaited_after(step - 1) == ()


def test_of_a_ring_it_waits_where_it_has_sent_as_much_as_it_received() -> None:
    queues = queues_of("RING", "AllReduce", 4, 0)
    assert queues.awaited_after(1) == (Message(3, 1),)
    queues.came(Message(3, 1))
    assert queues.awaited_after(1) == ()  # received more than was sent: sends on
    assert queues.awaited_after(2) == (Message(3, 2),)
    assert queues.awaited_after(6) == ()  # the last
    assert [send.share for send in queues.sends] == [1 / 4] * 6
