"""Iterations that became longer for good, in a log that names nobody."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from oncall.core.units import NS_PER_S
from oncall.evidence import Incident

STEPS = 120


def _log(incident: Incident, steps: Sequence[int], columns: dict[str, Any]) -> None:
    row = {"job": "j", "path": "a.log", "line": [*steps], "attempt": 1, "iteration": [*steps]}
    incident.append("logged_steps", row | columns)


def spans(
    seconds: Callable[[int], float], seed: int, scatter: float = 0.03
) -> list[tuple[int, int, float]]:
    """The first and last slow iteration and how many times the baseline they take."""
    draw = random.Random(seed)
    with Incident.empty() as incident:
        steps = range(1, STEPS + 1)
        took_ns = [int(seconds(step) * draw.gauss(1, scatter) * NS_PER_S) for step in steps]
        at_ns = [step * NS_PER_S for step in steps]
        _log(incident, steps, {"duration_ns": took_ns, "at_ns": at_ns})
        incident.require(["slow_steps"])
        return incident.con.execute(
            "SELECT first_iteration, last_iteration, times FROM slow_steps ORDER BY ALL"
        ).fetchall()


@pytest.mark.parametrize("seed", range(2))
def test_a_fifth_more_for_good_is_a_slowdown(seed: int) -> None:
    ((first, last, times),) = spans(lambda step: 1.25 if step >= 70 else 1, seed)
    assert abs(first - 70) <= 2 and last == STEPS
    assert times == pytest.approx(1.25, rel=0.03)


def test_times_that_are_printed_alike_scatter_by_nothing() -> None:
    ((first, last, times),) = spans(lambda step: 1.25 if step >= 90 else 1, 0, scatter=0)
    assert (first, last) == (90, STEPS)
    assert times == pytest.approx(1.25)


def test_each_start_of_each_job_is_compared_with_itself() -> None:
    with Incident.empty() as incident:
        for job, attempt, slow_s in (("a", 1, 1.0), ("a", 2, 1.3), ("b", 1, 1.3)):
            steps = range(1, 61)
            took_ns = [int((slow_s if step > 40 else 1) * NS_PER_S) for step in steps]
            start = {"job": job, "path": f"{job}{attempt}.log", "attempt": attempt}
            _log(incident, steps, start | {"duration_ns": took_ns, "at_ns": [*steps]})
        incident.require(["slow_steps"])
        found = incident.con.execute(
            "SELECT job, attempt, first_iteration FROM slow_steps ORDER BY ALL"
        ).fetchall()
    assert found == [("a", 2, 41), ("b", 1, 41)]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    "seconds",
    [
        lambda _: 1,
        lambda step: 1 + step / 200,  # longer and longer: a curriculum of sequence lengths
        lambda step: 9 if step % 20 == 0 else 1,  # checkpoints
        lambda step: 1.3 if 50 <= step < 60 else 1,
        lambda step: 1.05 if step >= 70 else 1,
    ],
)
def test_what_is_no_lasting_change_is_none(seconds: Callable[[int], float], seed: int) -> None:
    assert spans(seconds, seed) == []


def test_what_takes_twice_as_long_for_a_while_still_counts() -> None:
    ((first, last, times),) = spans(lambda step: 2.5 if 50 <= step < 60 else 1, 0)
    assert (first, last) == (50, 59)
    assert times > 2


def slowdowns(rows: Callable[[int], dict[str, float]], announced: int | None = None) -> list[float]:
    """How many times the baseline the slow spans take, where lines state more than their time."""
    with Incident.empty() as incident:
        steps = range(1, 61)
        lines = [rows(step) | {"line": 2 * step} for step in steps]
        _log(incident, steps, {name: [line[name] for line in lines] for name in lines[0]})
        if announced:
            event = {"job": "j", "path": "a.log", "line": 2 * announced - 1, "attempt": 1}
            incident.append("log_events", event | {"kind": "work"})
        incident.require(["slow_steps"])
        found = incident.con.execute("SELECT round(times, 2) FROM slow_steps").fetchall()
    return [times for (times,) in found]


def later(step: int, before: float, since: float) -> float:
    return since if step > 30 else before


def test_a_larger_batch_is_no_slowdown() -> None:
    assert not slowdowns(lambda n: {"duration_ns": later(n, 1e9, 2e9), "work": later(n, 256, 512)})
    assert not slowdowns(lambda n: {"duration_ns": later(n, 1e9, 2e9), "rate": 81000})
    assert not slowdowns(lambda n: {"rate": later(n, 7500, 5000), "flops": 430})


def test_more_than_the_batch_explains_is_one() -> None:
    assert slowdowns(
        lambda n: {"duration_ns": later(n, 1e9, 3.5e9), "work": later(n, 256, 512)}
    ) == [1.75]
    assert slowdowns(lambda n: {"rate": later(n, 7500, 5000), "flops": later(n, 430, 287)}) == [1.5]


def test_a_smaller_batch_in_the_same_time_is_none() -> None:
    assert not slowdowns(lambda n: {"duration_ns": 1e9, "work": later(n, 512, 256)})


def test_a_change_that_the_log_announces_begins_anew() -> None:
    def twice(step: int) -> dict[str, float]:
        return {"duration_ns": later(step, 1e9, 2.2e9)}

    assert slowdowns(twice) == [2.2]
    assert not slowdowns(twice, announced=31)
