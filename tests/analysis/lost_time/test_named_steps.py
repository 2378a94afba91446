"""Profiles beside dumps: what steps that a recorder names show, other calls do not undo."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.together import Job

from .test_lateness import RANKS, even, played

CALLS = 6  # of a rank in an iteration: five layers and the call that ends it
STEPS, ITERATIONS = 9, 24  # that the profile covers, and the dumps
WHOLE = ITERATIONS - 2  # the first and the last are not


def steps_of(columns: dict[str, Any], late: int) -> dict[str, Any]:
    """The steps of a profile: all wait for 30 % of the third, sixth and ninth, but a rank that is
    `late`, and hardly in the others."""
    rows = []
    for rank in range(RANKS):
        at_ns = np.array(columns["enqueued_ns"])[np.array(columns["rank"]) == rank][::CALLS]
        for step, took_ns in enumerate(np.diff(at_ns)[:STEPS]):
            share = 0.3 if step % 3 == 2 and rank != late else 0.01
            rows += [
                {"rank": rank, "iteration": step, "started_ns": at_ns[step]}
                | {"kind": kind, "spent_ns": int(part * took_ns)}
                for kind, part in (("step", 1.0), ("wait", share))
            ]
    return {name: [row[name] for row in rows] for name in rows[0]}


def found(job: Job, late: int | None) -> list[tuple[Any, ...]]:
    """What dumps without durations show, of hosts that run ahead; with the profile of some steps,
    unless `late` is None."""
    columns = played(even, overlaps=True, timed=False, iterations=ITERATIONS)
    job.append("ops", columns)
    if late is not None:
        job.append("profiled_work", steps_of(columns, late))
    return job.found("lost_time", "cause, whole, rank, of_iterations")


NOBODY = -1


@pytest.mark.parametrize(
    ("late", "shown"),
    [
        (None, [("account", False, None, WHOLE)]),
        (NOBODY, [("account", True, None, STEPS)]),
        (5, [("account", True, None, WHOLE), ("own", None, 5, WHOLE)]),
    ],
)
def test_what_a_profile_shows_is_said_though_dumps_leave_it_open(
    job: Job, late: int | None, shown: list[tuple[Any, ...]]
) -> None:
    assert found(job, late) == shown
