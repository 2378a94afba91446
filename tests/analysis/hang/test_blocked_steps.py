"""How far devices come in the calls their hosts have made, against working them off one by one."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from oncall.analysis.hang.last_callers import blocked_steps, exchange_slots

# Of each rank the calls it made, in order; which of these lack a member.
programs = st.lists(
    st.lists(st.integers(0, 11), unique=True, max_size=8), min_size=1, max_size=5
).filter(any)
lacking = st.sets(st.integers(0, 11), max_size=3)


def worked_off(programs: list[list[int]], unmet: set[int]) -> list[int]:
    """How many calls each device completes: one does when it is next on all who made it."""
    done = [0] * len(programs)
    while True:
        heads = {r: p[n] for r, (p, n) in enumerate(zip(programs, done, strict=True)) if n < len(p)}
        ready = {
            call
            for call in heads.values()
            if call not in unmet
            and all(heads.get(r) == call for r, p in enumerate(programs) if call in p)
        }
        if not ready:
            return done
        for r, call in heads.items():
            done[r] += call in ready


@given(programs, lacking)
def test_devices_stop_where_working_off_the_calls_stops(
    programs: list[list[int]], unmet: set[int]
) -> None:
    # One order for all: calls made in crossed orders are a deadlock, found elsewhere.
    programs = [sorted(calls) for calls in programs if calls]
    rank = np.repeat(np.arange(len(programs)), [len(p) for p in programs])
    call = np.concatenate([np.array(p) for p in programs])
    step = np.arange(len(rank))
    blocked, stuck = blocked_steps(rank, step, call, np.isin(call, list(unmet)))
    first = np.searchsorted(rank, np.arange(len(programs)))
    ends = np.searchsorted(rank, np.arange(len(programs)), side="right")
    assert (np.minimum(blocked, ends) - first).tolist() == worked_off(programs, unmet)
    assert all(stuck[step == b].any() for b in blocked if b < len(rank))


def test_the_halves_of_an_exchange_do_not_wait_for_each_other() -> None:
    # A rank receives from 7 and sends to it at once, computes, and does so again.
    transfer = np.array([True, True, False, True, True, True])
    way = np.array([15, 14, 0, 15, 14, 15])
    slots = exchange_slots(np.zeros(6, int), transfer, way)
    assert slots.tolist() == [0, 0, 1, 2, 2, 3]
    # Its second Recv is unmet: the Send beside it completes, what comes after both does not.
    unmet = np.array([False, False, False, True, False, False])
    blocked, stuck = blocked_steps(np.zeros(6, int), slots, np.arange(6), unmet)
    assert blocked.tolist() == [2]
    assert stuck.tolist() == [False, False, False, True, False, True]
