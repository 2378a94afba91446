"""Who is late by more than chance: against its peers, and without any against its own past."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest

from oncall.analysis.lost_time.chance import at_least
from oncall.analysis.lost_time.iterations import Iterations
from oncall.analysis.lost_time.latecomers import latecomers
from oncall.analysis.lost_time.lateness import Lateness
from oncall.analysis.lost_time.limits import Limits

MS = 1e6
BOTH, STAGES = [7] * 4, [1, 2, 3, 4]  # the programs of four ranks: all the same, all different


@pytest.mark.parametrize(("number", "of", "part"), [(0, 9, 0.25), (3, 9, 0.25), (40, 200, 1 / 8)])
def test_the_binomial_tail(number: int, of: int, part: float) -> None:
    exact = sum(comb(of, k) * part**k * (1 - part) ** (of - k) for k in range(number, of + 1))
    assert at_least(number, of, part) == pytest.approx(exact, rel=1e-9)


def test_thousands_of_iterations() -> None:
    assert 0 <= at_least(275, 1_100, 1 / 64) < 1e-100
    assert at_least(0, 20_000, 1 / 64) == pytest.approx(1)


def test_ranks_without_others_are_late_by_chance() -> None:
    assert at_least(5, 5, 1.0) == 1


def late(share: list[float], programs: list[int], *, longer: bool) -> tuple[int, ...]:
    """Who is blamed, if rank 2 is late by `share` of each iteration, others by 2 % at most;
    `longer`: iterations take so much longer."""
    number = len(share)
    length = 100 * MS * (1 + np.array(share) * longer)
    late_ns = np.random.default_rng(3).uniform(-2, 2, (number, 4)) * MS
    late_ns[:, 2] += np.array(share) * length
    iterations = Iterations(
        number=np.zeros(0, np.int64),
        begin_ns=np.arange(number) * int(200 * MS),
        length_ns=length,
        program=np.tile(np.array(programs, np.uint64), (number, 1)),
        cut=np.zeros(0, np.bool_),
        ahead=0.0,
    )
    found = latecomers(Lateness(late_ns, iterations, timed=True), Limits())
    return found.ranks if found else ()


BEGINS, ALWAYS = [0.0] * 6 + [0.2] * 10, [0.2] * 16


@pytest.mark.parametrize(
    ("share", "programs", "longer", "blamed"),
    [
        (BEGINS, BOTH, True, (2,)),
        (ALWAYS, BOTH, True, (2,)),
        (BEGINS, STAGES, True, (2,)),
        (ALWAYS, STAGES, True, ()),  # a heavier stage is as late
        (BEGINS, STAGES, False, ()),  # nobody lost anything
    ],
)
def test_who_has_no_peers_is_held_against_its_own_past(
    share: list[float], programs: list[int], longer: bool, blamed: tuple[int, ...]
) -> None:
    assert late(share, programs, longer=longer) == blamed
