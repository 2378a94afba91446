"""Iterations that a recorder names: the steps of a profile, and how long ranks waited in them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import duckdb
import numpy as np

from oncall.analysis.common.quantiles import quantile
from oncall.analysis.lost_time.arrays import NONE, Ints, Times
from oncall.analysis.lost_time.iterations import (
    Iterations,
    kinds_called,
    like_most,
    programs_called,
)
from oncall.analysis.lost_time.limits import Limits
from oncall.analysis.lost_time.programs import Programs

_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Steps:
    """The steps (s,) that a recorder names: when each rank began them, and how long they took and
    it waited for others in them (s, r), NaN where not recorded."""

    begin_ns: Ints
    length_ns: Times
    waited_ns: Times


def read_steps(con: duckdb.DuckDBPyConnection, job: str, programs: Programs) -> Steps:
    """The steps of a job's ranks; none where no recorder names them."""
    found = con.execute(
        "SELECT iteration, rank, started_ns, max(spent_ns) FILTER (kind = 'step') AS length_ns,"
        " max(spent_ns) FILTER (kind = 'wait') AS waited_ns FROM profiled_work"
        " WHERE job = ? AND kind IN ('step', 'wait') AND list_contains(?, rank) GROUP BY ALL",
        [job, programs.ranks.tolist()],
    ).fetchnumpy()
    number, step = np.unique(found["iteration"], return_inverse=True)
    place = step, np.searchsorted(programs.ranks, found["rank"])
    begin_ns = np.full((len(number), len(programs.ranks)), _NEVER)
    length_ns, waited_ns = np.full((2, *begin_ns.shape), np.nan)
    begin_ns[place] = found["started_ns"]
    length_ns[place], waited_ns[place] = found["length_ns"], found["waited_ns"]
    return Steps(begin_ns, length_ns, waited_ns)


def iterations_named(
    programs: Programs, steps: Steps, part: float, limits: Limits
) -> Iterations | None:
    """The iterations that a recorder names; None if too few, or if less than a `part` of the calls
    lies in them."""
    ranks = len(programs.ranks)
    of_all = np.isfinite(steps.length_ns).sum(1) >= limits.nearly_all * ranks
    if of_all.sum() < limits.few:
        return None
    begin_ns, length_ns = steps.begin_ns[of_all], steps.length_ns[of_all]
    inside = _steps_of(programs, begin_ns, length_ns)
    if (inside != NONE).mean() < part:
        return None
    found = Iterations(
        number=inside,
        begin_ns=begin_ns.min(1),
        length_ns=quantile(length_ns, 0.5, 1),
        program=programs_called(programs, inside, (len(begin_ns), ranks)),
        span=np.arange(len(begin_ns)),
        cut=(inside != NONE) & (np.diff(inside, append=NONE) != 0),
        ahead=0.0,
        stretches=False,
        extra=np.zeros(len(inside), dtype=np.bool_),
        waited_ns=steps.waited_ns[of_all],
    )
    found = like_most(found, programs, limits)
    # Of steps that ended before the calls that were kept, what a rank ever calls says who is alike.
    ever = kinds_called(programs, np.zeros_like(inside), (1, ranks))
    return replace(found, program=np.where(found.program == 0, ever, found.program))


def _steps_of(programs: Programs, begin_ns: Ints, length_ns: Times) -> Ints:
    """The step of each call (n,), NONE outside: the last that its rank began before it, if it was
    not over."""
    found = np.full(len(programs.rank), NONE)
    for rank in range(len(programs.ranks)):
        mine = slice(*np.searchsorted(programs.rank, [rank, rank + 1]))
        order = np.argsort(begin_ns[:, rank], kind="stable")
        last = np.searchsorted(begin_ns[order, rank], programs.at_ns[mine], side="right") - 1
        step = order[np.maximum(last, 0)]
        passed_ns = programs.at_ns[mine] - begin_ns[step, rank]
        known = (last >= 0) & (passed_ns < length_ns[step, rank])
        found[mine] = np.where(known, step, NONE)
    return found
