"""Transfers of a group beside those of its siblings, where nobody comes late by them."""

from __future__ import annotations

from oncall.analysis.lost_time.iterations import iterations_of
from oncall.analysis.lost_time.judgement import Entry
from oncall.analysis.lost_time.lateness import lateness_of
from oncall.analysis.lost_time.limits import Limits
from oncall.analysis.lost_time.moments import arrivals_of
from oncall.analysis.lost_time.programs import read_programs
from oncall.analysis.lost_time.sibling_transfers import slow_beside_siblings
from oncall.evidence import Incident

from .test_lateness import PAIRS, WORLD, even, played

LIMITS = Limits()


def test_a_slow_link_that_all_wait_in_meanwhile_makes_nobody_late() -> None:
    """A pair reduces beside all, whose transfer crosses the same link and ends later."""

    def transfer(_iteration: int, comm: int) -> float:
        return {3: 30, 1: 60}.get(comm, 0.01)

    def work(iteration: int, rank: int) -> float:
        return 4 * even(iteration, rank)

    with Incident.empty() as incident:
        incident.append("ops", played(work, [*PAIRS, (1, WORLD)], overlaps=True, transfer=transfer))
        incident.require(["operations", "members"])
        programs = read_programs(incident.con, "j", LIMITS)
    assert programs is not None
    moments = arrivals_of(programs, LIMITS).moments()
    iterations = iterations_of(programs, moments, LIMITS)
    assert iterations is not None
    lateness = lateness_of(programs, iterations, moments, LIMITS)
    entry = slow_beside_siblings(programs, lateness, LIMITS)
    assert isinstance(entry, Entry) and entry.ranks == (1, 5)
