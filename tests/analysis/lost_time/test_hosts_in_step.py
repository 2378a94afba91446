"""Jobs whose hosts wait in every call, as with gloo: calls alone show who came late, and why."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from tests.together import Job

from oncall.evidence import Incident
from oncall.use_case.doubt import Doubt, why_undecided

from .jobs import MS, UNIX_NS

RANKS = 4
Call = tuple[str, int]  # its operation and size
Pause = Callable[[int, int, int], float]  # (step, rank, number of the call in it) -> ms


def in_step(steps: Sequence[Sequence[Call]], pause: Pause) -> dict[str, Any]:
    """Columns of `ops` of four ranks that work for 10 ms, and pause, before each call of a step."""
    draw = random.Random(3)
    rows: list[dict[str, Any]] = []
    now, seq = [0.0] * RANKS, 0
    for step, calls in enumerate(steps):
        for number, (op, count) in enumerate(calls):
            now = [
                at + 10 + draw.random() + pause(step, rank, number) for rank, at in enumerate(now)
            ]
            rows += [
                {"job": "j", "comm": 0, "seq": seq, "rank": rank, "kind": "coll", "done": True}
                | {"op": op, "count": count, "enqueued_ns": UNIX_NS + int(at * MS)}
                for rank, at in enumerate(now)
            ]
            now, seq = [max(now) + 1] * RANKS, seq + 1
    return {name: [row[name] for row in rows] for name in rows[0]}


def layers(steps: int, calls: int = 8) -> list[list[Call]]:
    """Steps of several layers, and one call that comes once in each."""
    return [[("AllReduce", 4096)] * calls + [("AllReduce", 64)]] * steps


def experts(steps: int) -> Iterator[list[Call]]:
    """Layers exchange tokens forward, and backward before each reduces; a mean every fifth step."""
    for step in range(steps):
        calls = [("AllToAll", 96)] * 8 + ([("AllToAll", 96)] * 2 + [("AllReduce", 4096)]) * 4
        yield calls + [("AllReduce", 1)] * (step % 5 == 4)


def nobody(_step: int, _rank: int, _number: int) -> float:
    return 0.0


def causes(job: Job, columns: dict[str, Any]) -> set[tuple[str, int]]:
    job.append("ops", columns)
    rows = job.found("lost_time", "cause, rank", "rank IS NOT NULL")
    return {(cause, rank) for cause, rank in rows}


@pytest.mark.parametrize("every", [4, None])
def test_a_loader_is_late_before_the_first_of_several_like_calls(
    job: Job, every: int | None
) -> None:
    """Between the others of a step nobody is: a step begins at the first."""

    def loader(step: int, rank: int, number: int) -> float:
        return 300.0 if every and rank == 2 and step % every == 0 and number == 0 else 0.0

    found = causes(job, in_step(list(experts(16)), loader))
    assert found == ({("own", 2)} if every else set())


@pytest.mark.parametrize(
    ("rank", "at_once", "found"),
    [(0, False, "own"), (0, True, "perhaps"), (3, False, "own"), (3, True, "own")],
)
def test_rank_0_that_is_slow_before_every_call_is_not_on_duty(
    job: Job, rank: int, at_once: bool, found: str
) -> None:
    def slow(step: int, who: int, number: int) -> float:
        if who != rank or step != 12:
            return 0.0
        return 1600.0 * (number == 3) if at_once else 200.0

    assert causes(job, in_step(layers(14), slow)) == {(found, rank)}


def test_ranks_that_are_late_by_turns_hide_no_long_stall(job: Job) -> None:
    draw = random.Random(5)
    turns = {(step, draw.randrange(RANKS)) for step in range(20)}

    def uneven(step: int, rank: int, number: int) -> float:
        stall = 2500.0 if (step, rank) == (17, 2) else 0.0
        return (stall + 15.0 * ((step, rank) in turns)) * (number == 0)

    assert causes(job, in_step(layers(20), uneven)) == {("own", 2)}


@pytest.mark.parametrize("op", ["Barrier", "AllReduce"])
def test_a_save_before_a_call_that_most_steps_lack_is_no_loss(job: Job, op: str) -> None:
    steps = [calls + [(op, 2)] * (number in (2, 4)) for number, calls in enumerate(layers(7))]

    def save(_step: int, rank: int, number: int) -> float:
        return 1000.0 if rank == 0 and number == 9 else 0.0

    assert causes(job, in_step(steps, save)) == set()


def test_who_is_late_in_steps_that_also_log_is_late_in_calls_that_all_steps_have(job: Job) -> None:
    steps = [
        calls + [("AllReduce", 1)] * (number % 5 == 4) for number, calls in enumerate(layers(20))
    ]

    def collects(step: int, rank: int, number: int) -> float:
        return 150.0 * (step % 5 == 4 and rank == 3 and number in (1, 5))

    assert causes(job, in_step(steps, collects)) == {("own", 3)}


@pytest.mark.parametrize("evaluates", [True, False])
def test_an_evaluation_is_longer_by_design(evaluates: bool) -> None:
    """The same time in calls that no other step makes, or in those that all make."""
    steps = [list(calls) for calls in layers(12)]
    if evaluates:
        steps[2] += [("AllReduce", 2)] * 4

    def work(step: int, _rank: int, number: int) -> float:
        return 200.0 if step == 2 and (number > 8 if evaluates else number < 4) else 0.0

    with Incident.empty() as incident:
        incident.append("ops", in_step(steps, work))
        doubt = why_undecided(incident, slow=True)
    assert (doubt == Doubt()) is evaluates
