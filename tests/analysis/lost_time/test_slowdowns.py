"""Iterations that are longer, and nobody in particular is to blame: if it lasts, no health."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import pytest
from tests.together import Job

from oncall.analysis.lost_time.books import books_of
from oncall.analysis.lost_time.causes import excess_of_own
from oncall.analysis.lost_time.changes import late_since, repeated, slowdowns_of
from oncall.analysis.lost_time.limits import Limits
from oncall.analysis.lost_time.named_steps import read_steps
from oncall.analysis.lost_time.programs import read_programs
from oncall.analysis.lost_time.ways import Evidence, outcome_of
from oncall.evidence import Incident
from oncall.rules.language.load import load_rulebooks, shipped_folder
from oncall.use_case.diagnose import diagnose

from .jobs import MS, UNIX_NS, layers, no_offset

ITERATIONS, WORK_MS = 12, 10


def transfer(_iteration: int, _group: int, _layer: int) -> int:
    return 1


def recorded(slow: Collection[int]) -> dict[str, Any]:
    """Work takes twice as long on all ranks in the iterations `slow`."""

    def work(iteration: int, _rank: int, _layer: int) -> int:
        return WORK_MS * (2 if iteration in slow else 1)

    return layers(work, transfer, ITERATIONS, timed=False, clock=no_offset)


def test_a_lasting_slowdown_of_all_is_stated_with_its_begin() -> None:
    with Incident.empty() as incident:
        incident.append("ops", recorded(range(6, ITERATIONS)))
        incident.require(["lost_time"])
        ((share, at_ns),) = incident.con.execute(
            "SELECT share, at_ns FROM lost_time WHERE cause = 'unexplained'"
        ).fetchall()
        # Six layers of work and an operation each, then one of all.
        short, long = 6 * (WORK_MS + 1) + 1, 6 * (2 * WORK_MS + 1) + 1
        assert share == pytest.approx(1 - short / long, rel=0.02)
        assert at_ns - UNIX_NS == pytest.approx(6 * short * MS, abs=long * MS)
        # What is not accounted for refutes no finding of others.
        assert incident.con.execute(
            "SELECT whole FROM lost_time WHERE cause = 'account'"
        ).fetchall() == [(False,)]
        diagnosis = diagnose(incident, load_rulebooks([shipped_folder()]))
    assert diagnosis.result == "inconclusive"
    assert "iterations take 1.9 times as long as before" in diagnosis.suspects[0].why
    assert "oncall probe" in diagnosis.would_decide


def test_ranks_late_by_turns_do_not_explain_a_lasting_slowdown(job: Job) -> None:
    def work(iteration: int, rank: int, _layer: int) -> int:
        late = (rank, iteration % 3) in ((0, 0), (2, 1))
        return WORK_MS * (3 if iteration >= ITERATIONS / 2 else 1) + 8 * late

    columns = layers(work, transfer, ITERATIONS, timed=False, clock=no_offset)
    job.append("ops", columns)
    assert ("unexplained",) in job.found("lost_time", "DISTINCT cause")


@pytest.mark.parametrize("slow", [(5, 6), (), range(3, 9)])
def test_iterations_that_are_long_for_a_while_are_none(job: Job, slow: Collection[int]) -> None:
    job.append("ops", recorded(slow))
    assert job.found("lost_time", "cause") == [("account",)]


def test_ranks_that_are_late_at_different_times_are_late_by_turns(job: Job) -> None:
    def work(iteration: int, rank: int, _layer: int) -> int:
        return WORK_MS + 8 * ((rank, iteration % 3) in ((0, 0), (2, 1)))

    job.append("ops", layers(work, transfer, ITERATIONS, timed=False, clock=no_offset))
    assert job.found("lost_time", "cause, rank") == [("account", None), ("turns", 0), ("turns", 2)]


BEGINS_NS = np.arange(8) * 100


@pytest.mark.parametrize(
    ("length_ns", "long"),
    [
        ([10, 20, 10, 20, 20, 10, 11, 21], [1, 3, 4, 7]),
        ([10, 20, 10, 20, 10, 10, 11, 11], []),  # two are events
        ([10, 11, 12, 13, 14, 15, 16, 17], []),  # of one kind that scatters
        ([10, 20, 10, 20, np.nan, np.nan, 10, 20], [1, 3, 7]),
    ],
)
def test_lengths_of_two_kinds_are_separated(length_ns: list[float], long: list[int]) -> None:
    found = repeated(np.array(length_ns, dtype=np.float64), BEGINS_NS, Limits())
    concerned = [one.concerns(BEGINS_NS) for one in found]
    assert [np.flatnonzero(each).tolist() for each in concerned] == ([long] if long else [])


def test_whose_own_time_alone_is_longer_in_the_longer_iterations_needs_no_exact_replay() -> None:
    slow, limits = (1, 2, 4, 7, 8), Limits()

    def work(iteration: int, rank: int, _layer: int) -> int:
        return WORK_MS * (2 if rank == 3 and iteration in slow else 1)

    with Incident.empty() as incident:
        incident.append("ops", layers(work, transfer, ITERATIONS, timed=False, clock=no_offset))
        incident.require(["operations", "members"])
        programs = read_programs(incident.con, "j", limits)
        assert programs is not None
        books = books_of(programs, limits)
    assert books is not None
    (slowdown,) = slowdowns_of(books, limits)
    excess_ns = books.joined(excess_of_own).T
    entry = late_since(slowdown, excess_ns, books.begin_ns, books.length_ns, limits)
    assert entry is not None
    assert (entry.ranks, entry.segments) == ((3,), len(slow))


SPELL = range(20, 40)


def of_a_spell() -> dict[str, Any]:
    """Rank 1 works half as long again in iterations long before the newest."""

    def work(iteration: int, rank: int, _layer: int) -> int:
        return WORK_MS + 5 * (rank == 1 and iteration in SPELL)

    return layers(work, transfer, 120, timed=True, clock=no_offset)


def test_a_rank_that_was_slow_long_before_the_newest_iterations_is_named_as_over(job: Job) -> None:
    job.append("ops", of_a_spell())
    assert job.found("lost_time", "cause, rank, until_ns IS NOT NULL")[1:] == [("own", 1, True)]


def test_of_iterations_too_many_to_replay_who_was_waited_for_is_suspected() -> None:
    limits = Limits(most_calls=1)
    with Incident.empty() as incident:
        incident.append("ops", of_a_spell())
        incident.require(["operations", "members"])
        programs = read_programs(incident.con, "j", limits)
        assert programs is not None
        evidence = Evidence(programs, limits, read_steps(incident.con, "j", programs))
        assert evidence.books is not None
        assert evidence.books.older == 118 - limits.most_compared
        outcome = outcome_of(evidence)
    assert [(entry.ranks, entry.segments) for entry in outcome.entries] == [((1,), len(SPELL))]
    assert outcome.way == "suspicion"  # no proof, but no health either
