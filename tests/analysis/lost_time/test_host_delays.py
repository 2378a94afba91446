"""Hosts that hold up their own calls, seen by calls alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.together import Job

from oncall.analysis.lost_time.arrays import Times
from oncall.analysis.lost_time.host_delays import host_delays
from oncall.analysis.lost_time.iterations import iterations_of
from oncall.analysis.lost_time.limits import Limits
from oncall.analysis.lost_time.moments import arrivals_of
from oncall.analysis.lost_time.programs import read_programs
from oncall.evidence import Incident

from .jobs import MS, UNIX_NS
from .test_lateness import even, late, played

LIMITS = Limits()


def delays_ms(columns: dict[str, Any]) -> Times:
    """Of each rank in each iteration (s, r)."""
    with Incident.empty() as incident:
        incident.append("ops", columns)
        incident.require(["operations", "members"])
        programs = read_programs(incident.con, "j", LIMITS)
    assert programs is not None
    iterations = iterations_of(programs, arrivals_of(programs, LIMITS).moments(), LIMITS)
    assert iterations is not None
    moments = arrivals_of(programs, LIMITS).moments(iterations.nth)
    return host_delays(programs, iterations, moments, LIMITS)[0] / MS


def stalls(*when: tuple[int, int]) -> Callable[[int, int], float]:
    """Of the host, 900 ms in these (iteration, rank)."""
    return lambda iteration, rank: 900 if (iteration, rank) in when else 0


def test_a_delay_is_measured_on_its_own_clock_and_nobody_elses() -> None:
    found = delays_ms(played(even, overlaps=True, timed=False, pause=stalls((4, 3), (9, 3))))
    long = found > 100
    assert long.sum() == 2 and long[:, 3].sum() == 2
    assert found[long] == pytest.approx(900, rel=0.05)


@pytest.mark.parametrize(
    ("when", "blamed"),
    [
        ([(4, 3), (9, 3)], (3,)),
        ([(4, 3), (9, 6)], ()),  # by turns
        ([(4, 3), (6, 3), (9, 6)], ()),
    ],
)
def test_a_few_long_stalls_of_one_host_alone_are_its_fault(
    job: Job, when: list[tuple[int, int]], blamed: tuple[int, ...]
) -> None:
    columns = played(even, overlaps=True, timed=False, pause=stalls(*when))
    assert late(job, columns)[0] == blamed


def staged(late_in: set[int]) -> dict[str, Any]:
    """Ranks 0-2 are the first stage, 3-5 the second. Rank 1 is late in some iterations; rank 4, who
    waits for the first stage, calls late as well, and that it received is not recorded. All reduce
    at the end."""
    rows: list[dict[str, Any]] = []
    now = [0.0] * 6
    for number in range(12):
        stall = 500.0 if number in late_in else 0.0
        for layer in range(4):
            for comm, stage in ((1, (0, 1, 2)), (2, (3, 4, 5))):
                called = {rank: now[rank] + 10 + rank / 10 for rank in stage}
                if layer == 1:
                    called[1 if comm == 1 else 4] += stall * (1 if comm == 1 else 1.04)
                for rank in stage:
                    rows.append(call(comm, 4 * number + layer, rank, called[rank], 4096))
                    now[rank] = max(called.values()) + 1
        for rank in range(6):
            rows.append(call(9, number, rank, now[rank] + 1, 1))
        now = [max(now) + 2] * 6
    return {name: [row[name] for row in rows] for name in rows[0]}


def call(comm: int, seq: int, rank: int, at_ms: float, count: int) -> dict[str, Any]:
    return {
        "job": "j",
        "comm": comm,
        "seq": seq,
        "rank": rank,
        "kind": "coll",
        "op": "AllReduce",
        "count": count,
        "done": True,
        "enqueued_ns": UNIX_NS + int(at_ms * MS),
    }


def test_without_delays_there_are_none() -> None:
    assert np.nanmax(delays_ms(staged(set()))) < 30
