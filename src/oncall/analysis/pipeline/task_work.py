"""How much there is to do in a task, or how slow all are at once: what no machine is to blame for.

A longer sequence makes a micro-batch slow in all stages, and nowhere else. A first iteration, a
checkpoint behind the scenes, a clock limit of the cluster make an iteration slow in all stages
of all pipelines. One slow machine makes neither: of several ratios the lower middle counts, which
one machine cannot lift.
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
