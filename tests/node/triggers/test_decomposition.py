"""Laws that hold for every algorithm: what is sent is enough, and nothing waits in a cycle."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncall.node.triggers.decomposition import ALGORITHMS, NONE, Steps, decompose


def _members(algorithm: str, number: int) -> int:
    return 1 << (number % 4 + 1) if algorithm == "HALVING_DOUBLING" else number


def _held(steps: Steps, members: int, op: str) -> list[set[int]]:
    """Whose data each member has a part of, when all messages went in the order they need.

    A member sends its own and what the messages brought that this step, or one of its before,
    needed: not what merely happened to be there.
    """
    held = [{member} for member in range(members)]
    to_send = [{member} for member in range(members)]
    sent: dict[int, set[int]] = {}
    while len(sent) < len(steps):
        turn = {
            place
            for place in range(len(steps))
            if place not in sent
            and all(need == NONE or need in sent for need in steps.needs[place].tolist())
            and all(
                other in sent
                for other in range(len(steps))
                if steps.src[other] == steps.src[place] and steps.step[other] < steps.step[place]
            )
        }
        assert turn, f"{op}: messages wait for each other in a cycle"
        contents = {}
        for place in turn:
            needed = [sent[need] for need in steps.needs[place].tolist() if need != NONE]
            to_send[int(steps.src[place])].update(*needed)
            contents[place] = set(to_send[int(steps.src[place])])
        for place, data in contents.items():
            sent[place] = data
            held[int(steps.dst[place])] |= data
    return held


@pytest.mark.parametrize(("algorithm", "op"), sorted(ALGORITHMS))
@given(number=st.integers(2, 9))
def test_everyone_gets_a_part_of_everyones_data(algorithm: str, op: str, number: int) -> None:
    members = _members(algorithm, number)
    steps = decompose(algorithm, op, members)
    assert all(len(has) == members for has in _held(steps, members, op))


@pytest.mark.parametrize(("algorithm", "op"), sorted(ALGORITHMS))
@given(number=st.integers(2, 33))
def test_a_step_needs_what_arrives_at_its_sender(algorithm: str, op: str, number: int) -> None:
    steps = decompose(algorithm, op, _members(algorithm, number))
    for needs in steps.needs.T:
        has = needs != NONE
        assert (steps.dst[needs[has]] == steps.src[has]).all()


@given(number=st.integers(2, 64))
def test_ring_and_halving_doubling_send_the_least_there_is(number: int) -> None:
    ring = decompose("RING", "AllReduce", number)
    assert np.bincount(ring.src, ring.share) == pytest.approx(2 * (number - 1) / number)
    members = _members("HALVING_DOUBLING", number)
    halving = decompose("HALVING_DOUBLING", "AllReduce", members)
    sent = np.bincount(halving.src, halving.share)
    assert sent == pytest.approx(2 * (members - 1) / members)


def test_the_fourth_step_of_a_ring_of_four() -> None:
    steps = decompose("RING", "AllReduce", 4)
    place = next(p for p in range(len(steps)) if steps.src[p] == 2 and steps.step[p] == 4)
    need = steps.needs[place, 0]
    assert (steps.dst[place], steps.src[need], steps.step[need]) == (3, 1, 3)


def test_halving_doubling_needs_a_power_of_two() -> None:
    with pytest.raises(ValueError, match="power of two, not 6"):
        decompose("HALVING_DOUBLING", "AllReduce", 6)
