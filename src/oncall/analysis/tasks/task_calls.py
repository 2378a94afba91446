"""Which calls lie within each task of a rank.

Calls between two transfers belong to the task between them; where two tasks follow one another
without any transfer, the baseline lengths of the tasks separate them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from oncall.analysis.tasks import thresholds
from oncall.analysis.tasks.call_patterns import most_frequent, split
from oncall.analysis.tasks.rank_calls import TASK, RankCalls
from oncall.analysis.tasks.schedules import Array
from oncall.analysis.tasks.task_positions import NOWHERE, Tasks


@dataclass(frozen=True)
class Inside:
    """The calls within each task (t,): the first and, not included, the last of `positions`;
    `whole`: as many as the baseline, and none was lost."""

    positions: Array
    first: Array
    last: Array
    whole: Array


def calls_inside(calls: RankCalls, tasks: Tasks) -> Inside:
    """Which calls belong to each task of ranks that are alike; times (ranks, calls)."""
    positions = np.flatnonzero(calls.use == TASK)
    bounded = (tasks.low > NOWHERE) & (tasks.high >= 0) & (tasks.high > tasks.low)
    first = np.where(bounded, np.searchsorted(positions, tasks.low, side="right"), 0)
    last = np.where(bounded, np.searchsorted(positions, tasks.high), 0)
    last = np.maximum(first, last)
    lengths = _Lengths(calls, tasks, positions, first, last)
    first, last, expected = lengths.parts()
    lost = np.concatenate([[0], np.cumsum(calls.lost)])
    # What is missing just before the call behind a task may be the task's.
    behind = np.clip(tasks.high + 1, 0, len(calls))
    torn = lost[behind] > lost[np.maximum(tasks.low + 1, 0)]
    return Inside(positions, first, last, bounded & ~torn & (last - first == expected))


class _Lengths:
    """How the calls of a group are shared out to its tasks, by kind of task."""

    def __init__(
        self, calls: RankCalls, tasks: Tasks, positions: Array, first: Array, last: Array
    ) -> None:
        self.calls, self.tasks, self.positions = calls, tasks, positions
        self.first, self.last = first, last
        self.kind = 2 * tasks.chunk + tasks.backward
        starts = np.flatnonzero(np.diff(tasks.group, prepend=-1))
        self.starts, self.sizes = starts, np.diff(np.append(starts, len(tasks)))
        self.baseline = self._alone()

    def _alone(self) -> dict[int, int]:
        """The baseline length of each kind of task, where it is alone and something follows it."""
        alone = self.starts[self.sizes == 1]
        alone = alone[self.tasks.high[alone] < len(self.calls.use)]
        lengths = self.last - self.first
        found = {
            kind: most_frequent(lengths[mine])
            for kind in np.unique(self.kind).tolist()
            if len(mine := alone[(self.kind[alone] == kind) & (lengths[alone] > 0)])
        }
        return {kind: length for kind, length in found.items() if length}

    def parts(self) -> tuple[Array, Array, Array]:
        """First and last call of each task, and how many there should be (t,)."""
        first, last = self.first.copy(), self.last.copy()
        expected = np.zeros(len(first), dtype=np.int64)
        pairs = self.starts[self.sizes == 2]
        for kinds in np.unique(self.kind[pairs] * 10_000 + self.kind[pairs + 1]).tolist():
            one, other = divmod(kinds, 10_000)
            mine = pairs[(self.kind[pairs] == one) & (self.kind[pairs + 1] == other)]
            lengths = self._pair(mine, one, other)
            first[mine], last[mine + 1] = self.first[mine], self.last[mine]
            if lengths is None:
                last[mine], first[mine + 1] = self.last[mine], self.last[mine]
                continue
            # A part that the recorder lost is missed from the middle; each end shows its own task.
            last[mine] = np.minimum(self.first[mine] + lengths[0], self.last[mine])
            first[mine + 1] = np.maximum(last[mine], self.last[mine] - lengths[1])
            expected[mine], expected[mine + 1] = lengths
        alone = self.starts[self.sizes == 1]
        for kind, length in self.baseline.items():
            mine = alone[self.kind[alone] == kind]
            expected[mine] = length
            self._trim(first, last, mine, length)
        return first, last, expected

    def _trim(self, first: Array, last: Array, mine: Array, length: int) -> None:
        """Take what is too much at the ends of iterations: their first task keeps its last calls,
        others their first."""
        much = mine[last[mine] - first[mine] > length]
        opening = much[np.diff(self.tasks.block, prepend=-1)[much] != 0]
        closing = np.setdiff1d(much, opening)
        first[opening] = last[opening] - length
        last[closing] = first[closing] + length

    def _pair(self, mine: Array, one: int, other: int) -> tuple[int, int] | None:
        """The lengths of two kinds of tasks that follow one another."""
        lengths = self.last[mine] - self.first[mine]
        both = most_frequent(lengths[lengths > 0])
        if both is None:
            return None
        if one in self.baseline and other in self.baseline:
            return self.baseline[one], self.baseline[other]
        if one in self.baseline and self.baseline[one] < both:
            return self.baseline[one], both - self.baseline[one]
        if other in self.baseline and self.baseline[other] < both:
            return both - self.baseline[other], self.baseline[other]
        return self._by_word(mine[lengths == both], both)

    def _by_word(self, mine: Array, length: int) -> tuple[int, int]:
        """By what the calls are and how they follow one another, of pairs of equal length."""
        at = self.positions[self.first[mine][:, None] + np.arange(length)]
        gaps = np.diff(np.concatenate(self.calls.entered_ns[:, at]), axis=1)
        small = thresholds.LOSS
        pace = np.median(gaps, axis=0)
        begin = split(self.calls.size_bytes[at[0]], self.calls.sums[at[0]], pace, small)
        return begin, length - begin
