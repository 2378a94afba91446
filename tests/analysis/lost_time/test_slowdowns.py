"""Iterations that are longer, and nobody in particular is to blame: if it lasts, no health."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from oncall.diagnose import diagnose
from oncall.evidence import Incident
from oncall.rules.language.load import load_rulebooks, shipped_folder

from .jobs import MS, UNIX_NS, layers, no_offset

ITERATIONS, WORK_MS = 12, 10


def transfer(_iteration: int, _group: int, _layer: int) -> int:
    return 1


def recorded(slow: Collection[int]) -> Incident:
    """Work takes twice as long on all ranks in the iterations `slow`."""
    incident = Incident.empty()

    def work(iteration: int, _rank: int, _layer: int) -> int:
        return WORK_MS * (2 if iteration in slow else 1)

    columns = layers(work, transfer, ITERATIONS, timed=False, clock=no_offset)
    incident.append("ops", columns)
    return incident


def test_a_lasting_slowdown_of_all_is_stated_with_its_begin() -> None:
    with recorded(range(6, ITERATIONS)) as incident:
        incident.require(["lost_time"])
        ((share, at_ns),) = incident.con.execute(
            "SELECT share, at_ns FROM lost_time WHERE cause = 'unexplained'"
        ).fetchall()
        # Six layers of work and an operation each, then one of all.
        short, long = 6 * (WORK_MS + 1) + 1, 6 * (2 * WORK_MS + 1) + 1
        assert share == pytest.approx(1 - short / long, rel=0.02)
        assert at_ns - UNIX_NS == pytest.approx(6 * short * MS, abs=long * MS)
        diagnosis = diagnose(incident, load_rulebooks([shipped_folder()]))
    assert diagnosis.result == "inconclusive"
    assert "iterations take 1.9 times as long as before" in diagnosis.doubt
    assert "oncall probe" in diagnosis.would_decide


@pytest.mark.parametrize("slow", [(5, 6), (), range(3, 9)])
def test_iterations_that_are_long_for_a_while_are_none(slow: Collection[int]) -> None:
    with recorded(slow) as incident:
        incident.require(["lost_time"])
        causes = incident.con.execute("SELECT cause FROM lost_time").fetchall()
    assert causes == [("account",)]


def test_ranks_that_are_late_at_different_times_are_not_late_alike() -> None:
    def work(iteration: int, rank: int, _layer: int) -> int:
        return WORK_MS + 8 * ((rank, iteration % 3) in ((0, 0), (2, 1)))

    with Incident.empty() as incident:
        columns = layers(work, transfer, ITERATIONS, timed=False, clock=no_offset)
        incident.append("ops", columns)
        incident.require(["lost_time"])
        causes = incident.con.execute("SELECT cause FROM lost_time").fetchall()
    assert causes == [("account",)]
