"""Whether a job moves, by pulses: silent once nothing rises for longer than it did before."""

from __future__ import annotations

from oncall.core.units import NS_PER_S
from oncall.watch.listening import Pulses

MOVES = {"a": 5, "b": 7}


def silent(*pulses: tuple[float, dict[str, int]]) -> bool:
    """After these pulses, each at so many seconds."""
    one = Pulses()
    for at_s, pulse in pulses:
        one = one.then(pulse, round(at_s * NS_PER_S))
    return one.are_silent


def test_silence_counts_after_a_while_and_not_for_ever() -> None:
    assert [silent((0, MOVES), (at, MOVES)) for at in (3, 5, 500, 700)] == [
        *(False, True, True, False)
    ]
    assert not silent((0, MOVES), (20, MOVES), (22, MOVES | {"b": 8}))


def test_what_was_not_asked_for_meanwhile_is_no_silence() -> None:
    assert not silent((0, MOVES), (60, {"a": 9, "b": 9}), (62, {"a": 9, "b": 9}))


def test_a_job_that_pauses_is_suspected_later_but_within_a_look() -> None:
    paused = ((0, {"a": 1}), (6, {"a": 1}), (7, {"a": 2}))
    assert [silent(*paused, (at, {"a": 2})) for at in (12, 13.5)] == [False, True]
    long = ((0, {"a": 1}), (60, {"a": 1}), (61, {"a": 2}))
    assert [silent(*long, (at, {"a": 2})) for at in (68, 69.5)] == [False, True]
