"""Why a diagnosis without findings may be inconclusive: what accounts in part leave open."""

from __future__ import annotations

import random

import pytest

from oncall.evidence.incident import Incident
from oncall.rules.language.load import load_rulebooks, shipped_folder
from oncall.use_case.diagnose import diagnose
from oncall.use_case.doubt import FEW, IN_PART, Doubt, why_undecided

from .jobs import UNIX_NS
from .test_lateness import Work, even, played

LONG = 6


def evaluating(long: int | None) -> Work:
    """Even work of all ranks; sixty times as much in the iteration `long`: no host stops for so
    long by itself."""

    def work(iteration: int, rank: int) -> float:
        jitter = (7 * iteration + 3 * rank) % 5 / 10
        return (60 if iteration == long else 1) * (even(iteration, rank) + jitter)

    return work


@pytest.mark.parametrize(("long", "doubt"), [(LONG, Doubt(IN_PART, "iterations")), (None, Doubt())])
def test_an_account_in_part_shows_no_health(long: int | None, doubt: Doubt) -> None:
    """What made one iteration as long is not known, so a slow rank is not excluded."""
    with Incident.empty() as incident:
        incident.append("ops", played(evaluating(long), overlaps=True))
        assert why_undecided(incident, slow=True) == doubt
        rulebooks = [book for book in load_rulebooks([shipped_folder()]) if book.name == "slow"]
        found = diagnose(incident, rulebooks)
        assert (found.result, found.undecided) == (("inconclusive" if long else "none"), doubt.why)
        assert ("BUFFER_SIZE" in found.would_decide) is (long is not None)


@pytest.mark.parametrize("calls", [3, 40])
def test_durations_of_a_part_of_an_iteration_show_no_health(calls: int) -> None:
    """Forty layers, and `calls` of what comes once an iteration: how long it is, nothing shows."""
    rows = [
        {"job": "j", "comm": comm, "seq": seq, "rank": rank, "kind": "coll", "op": "AllReduce"}
        | {"count": 4096, "done": True, "duration_ns": 1_000_000}
        | {"enqueued_ns": UNIX_NS + (seq * 5 + comm) * 1_000_000}
        for comm, number in ((1, 40), (2, calls))
        for seq in range(number)
        for rank in range(2)
    ]
    with Incident.empty() as incident:
        incident.append("ops", {name: [row[name] for row in rows] for name in rows[0]})
        incident.require(["replayed_jobs"])
        assert incident.con.execute("FROM replayed_jobs").fetchall() == []
        assert (why_undecided(incident, slow=True).why == FEW) is (calls == 3)


@pytest.mark.parametrize("late_us", [0, 300])
def test_a_rank_that_was_late_from_the_beginning_leaves_no_health(late_us: int) -> None:
    """Hosts call ahead of their devices, and nothing shows how long an iteration was before."""
    draw = random.Random(1)
    rows, now_us = [], 0.0
    for seq in range(200):
        came_us = [now_us + 1600 + 20 * draw.random() + late_us * (rank == 2) for rank in range(4)]
        over_us = max(came_us) + 100
        rows += [
            {"job": "j", "comm": 0, "seq": seq, "rank": rank, "kind": "coll", "op": "AllReduce"}
            | {"count": 4096, "done": True, "enqueued_ns": UNIX_NS + int(now_us * 1000)}
            | {"started_ns": UNIX_NS + int(at_us * 1000)}
            | {"ended_ns": UNIX_NS + int(over_us * 1000)}
            for rank, at_us in enumerate(came_us)
        ]
        now_us = over_us
    with Incident.empty() as incident:
        incident.append("ops", {name: [row[name] for row in rows] for name in rows[0]})
        assert why_undecided(incident, slow=True).why == (IN_PART if late_us else "")
