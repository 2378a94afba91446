"""Whether a job moves, by pulses: silent once nothing rises for longer than it did before."""

from __future__ import annotations

from oncall.core.units import NS_PER_S
from oncall.watch.listening import Heard


def heard(*pulses: tuple[float, dict[str, int]]) -> Heard:
    one = Heard()
    for at_s, pulse in pulses:
        one = one.then(pulse, round(at_s * NS_PER_S))
    return one


def suspicious(one: Heard, *at_s: float) -> list[bool]:
    return [one.is_suspicious(round(at * NS_PER_S)) for at in at_s]


def test_silence_is_suspicious_after_a_while_and_not_for_ever() -> None:
    still = heard((0, {"a": 5, "b": 7}), (2, {"a": 5, "b": 7}))
    assert suspicious(still, 3, 5, 500, 700) == [False, True, True, False]
    assert suspicious(still.then({"a": 5, "b": 8}, 6 * NS_PER_S), 7, 11, 12.5) == [
        False,
        False,
        True,
    ]


def test_a_job_that_pauses_is_suspected_later_but_within_a_look() -> None:
    pausing = heard((0, {"a": 1}), (6, {"a": 2}), (8, {"a": 2}))
    assert suspicious(pausing, 11, 12.5) == [False, True]
    rarely = heard((0, {"a": 1}), (60, {"a": 2}))
    assert suspicious(rarely, 67, 68.5) == [False, True]


def test_who_says_nothing_is_neither_silent_nor_moving() -> None:
    assert suspicious(heard((0, {}), (9, {})), 100) == [False]
    assert suspicious(heard((0, {"a": 0})), 100) == [False], "no rank records there"
    one_left = heard((0, {"a": 5, "b": 7}), (3, {"a": 5}))
    assert suspicious(one_left, 5) == [True]
    assert suspicious(heard((0, {"a": 5}), (3, {"a": 5, "b": 7})), 5) == [False]
