"""How much work a task has, or how slow all tasks are at once: slowness that no machine causes.

A longer sequence makes a micro-batch slow in all stages, and nothing else slow. A first iteration,
a background checkpoint or a clock limit of the whole cluster makes an iteration slow in all stages
of all pipelines. One slow machine does neither. So of several ratios the lower median counts, which
one machine cannot raise.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Times = NDArray[np.float64]


def work_ratio(
    ratio: Times,
    iteration: Integers,
    pipeline: Integers,
    stage: Integers,
    batch: Integers,
    longer: float,
) -> Times:
    """By how much each task (n,) may take longer than the baseline, 1 where it is not `longer`.

    `ratio` is its duration over the baseline, NaN where unknown; `iteration`, `pipeline` (of that
    iteration) and `batch` (micro-batch and direction, of that pipeline) number what it belongs to.
    """
    stages = int(stage.max(initial=0)) + 1
    by_batch, _, batch_of = lower_middle(ratio, batch)
    # The middle of a stage first, so that stages of many tasks weigh no more than others.
    by_stage, first, stage_of = lower_middle(ratio, pipeline * stages + stage, least=1)
    by_iteration, _, iteration_of = lower_middle(by_stage, iteration[first])
    work = np.fmax(by_batch[batch_of], by_iteration[iteration_of[stage_of]])
    return np.where(work > longer, work, 1.0)


def lower_middle(values: Times, key: Integers, least: int = 2) -> tuple[Times, Integers, Integers]:
    """The lower median of the known values of each key, in order of keys, NaN for fewer than
    `least`; beside it an index of each key's first row and the place (n,) of each row's key."""
    keys, first, place = np.unique(key, return_index=True, return_inverse=True)
    known = np.flatnonzero(~np.isnan(values))
    order = known[np.lexsort((values[known], place[known]))]
    sizes = np.bincount(place[order], minlength=len(keys))
    begin = np.cumsum(sizes) - sizes
    middle: Times = np.full(len(keys), np.nan)
    enough = sizes >= least
    middle[enough] = values[order][(begin + (sizes - 1) // 2)[enough]]
    return middle, first.astype(np.int64), place.astype(np.int64)
