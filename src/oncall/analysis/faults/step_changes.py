"""When the iterations of a log became longer for good, by less than any two may differ.

Single iterations vary with their samples, and a slow GPU or link may cost all of them a fifth. Over
many iterations that shows: of all places to cut a log in two, one has the most different sides.
Where a log states how much an iteration is, or its rate, these must show the change, too: a larger
batch takes longer and is no slowdown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import duckdb
import numpy as np
from numpy.typing import NDArray

from oncall.evidence import Param, relation

# What a step line may state of its cost, the most significant last: by a rate of operations, long
# samples are no slower.
_NAMES = ("cost", "of_work", "of_rate", "of_flops")
_MEASURES = ", ".join(f"costs[{i}] AS {name}" for i, name in enumerate(_NAMES, start=1))
_COLUMNS = [
    ("job", "VARCHAR", "", "the job's name"),
    ("attempt", "INTEGER", "", "start of the job, 1 first"),
    ("regime", "BIGINT", "", "of these between changes of the batch that the log announces"),
    ("nth", "BIGINT", "", "which of the attempt's logged iterations is the first longer one"),
    ("times", "DOUBLE", "", "the median cost since, against that before"),
]


@relation(
    "step_changes",
    reads=["step_times"],
    empty_without=["step_times"],
    columns=_COLUMNS,
    source="step lines of training frameworks",
    params={
        "lasting": Param(
            1.15, "times as long for good: batches, caches and clocks change it by less"
        ),
        "side": Param(10, "iterations before and after: fewer have no median that holds"),
        "scatter": Param(3, "times what iterations scatter by, on either side"),
        "at_once": Param("70 %", "of the change comes at one place: else it is a drift"),
        "warm_up": "slow_steps.warm_up",
    },
)
def step_changes(con: duckdb.DuckDBPyConnection, **params: Any) -> Mapping[str, Any]:
    """The lasting change of each attempt between announced ones, if there is one."""
    rows = con.execute(
        f"SELECT job, attempt, regime, nth, {_MEASURES} FROM step_times WHERE nth > ? "
        "ORDER BY job, attempt, nth",
        [params["warm_up"]],
    ).fetchnumpy()
    measures = [np.ma.filled(rows[name].astype(np.float64), np.nan) for name in _NAMES]
    begins = (rows["job"][1:] != rows["job"][:-1]) | (np.diff(rows["attempt"]) != 0)
    begins |= np.diff(rows["regime"]) != 0
    found: list[tuple[Any, ...]] = []
    for mine in np.split(np.arange(len(rows["nth"])), np.flatnonzero(begins) + 1):
        stated = [one[mine] for one in measures if len(mine) and not np.isnan(one[mine]).any()]
        change = _change(stated[-1], params) if stated else None
        times = min(_times(one, change[0]) for one in stated) if change else 0.0
        if change is not None and times >= params["lasting"]:
            first = mine[change[0]]
            key = (int(rows[name][first]) for name in ("attempt", "regime", "nth"))
            found.append((rows["job"][first], *key, times))
    return {name: [row[i] for row in found] for i, (name, *_) in enumerate(_COLUMNS)}


def _times(cost: NDArray[np.float64], cut: int) -> float:
    """How many times the median cost (n,) before a place it is since."""
    return float(np.median(cost[cut:]) / np.median(cost[:cut]))


def _change(
    cost: NDArray[np.float64], params: Mapping[str, Any]
) -> tuple[int, float, float] | None:
    """Where the costs (n,) become larger for good, and their medians before and since."""
    side, n = int(params["side"]), len(cost)
    if n < 2 * side:
        return None
    height = np.log(cost)
    middle = np.median(height)
    # Where most are printed alike, none scatters: the change itself is not evened out.
    far = 2 * max(
        params["scatter"] * float(np.median(np.abs(height - middle))), np.log(params["lasting"])
    )
    evened = np.clip(height, middle - far, middle + far)  # a checkpoint shifts no mean
    at = np.arange(side, n - side + 1)
    sums = np.cumsum(evened)
    before, after = sums[at - 1] / at, (sums[-1] - sums[at - 1]) / (n - at)
    cut = int(at[np.argmax(at * (n - at) * np.maximum(after - before, 0.0) ** 2)])
    sides = height[:cut], height[cut:]
    low, high = (float(np.median(one)) for one in sides)
    change = high - low
    scatter = float(np.median(np.abs(np.concatenate([sides[0] - low, sides[1] - high]))))
    if change < np.log(params["lasting"]) or change < params["scatter"] * scatter:
        return None
    step = np.median(sides[1][:side]) - np.median(sides[0][-side:])
    still = np.median(sides[1][-side:]) - low
    if min(step, still) < params["at_once"] * change:
        return None
    return cut, float(np.exp(low)), float(np.exp(high))
