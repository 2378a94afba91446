"""Critical paths of many pipelines at once (VenusTrace Appendix A, Algorithm 3).

A task has at most two predecessors: the one before it on its own rank, and the one that sends what
it works on. So the trace graph is two arrays, and all pipelines are walked together, one level of
tasks after the other: a level holds the tasks of all pipelines that wait only for earlier levels.
All is O(tasks), with one numpy step for each level.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oncall.evidence import relation

Integers = NDArray[np.int64]
Times = NDArray[np.float64]
NONE = -1


@dataclass(frozen=True)
class TraceGraph:
    """Tasks 0..n-1 of many pipelines.

    `previous` (n,) is the task before each on its rank, `source` (n,) the one that sends to it, or
    NONE; `pipeline` (n,) is its pipeline 0..p-1; `levels` are tasks in topological order, those
    in a cycle left out; `after` and `receiver` (n,) turn `previous` and `source` around.
    """

    pipeline: Integers
    previous: Integers
    source: Integers
    after: Integers
    receiver: Integers
    levels: tuple[Integers, ...]

    @property
    def pipelines(self) -> int:
        return int(self.pipeline.max(initial=NONE)) + 1

    def earliest(self, duration: Times, latency: Times, hold: Times) -> Times:
        """When each task can end at the earliest (n,), its pipeline beginning at 0; NaN: never.

        `duration` (n,) of the tasks, `latency` (n,) from the source's end to a task's start, `hold`
        (n,) from the end of the task before it on its rank.
        """
        finish = np.append(np.full(len(duration), np.nan), 0.0)  # at NONE: the beginning
        for level in self.levels:
            ready = finish[self.source[level]]
            arrives = np.where(self.source[level] == NONE, 0.0, ready + latency[level])
            free = finish[self.previous[level]] + hold[level] * (self.previous[level] != NONE)
            finish[level] = np.maximum(free, arrives) + duration[level]
        return finish[:-1]

    def spans(self, finish: Times) -> Times:
        """The time of each pipeline (p,): its last end."""
        longest = np.zeros(self.pipelines)
        known = ~np.isnan(finish)
        np.maximum.at(longest, self.pipeline[known], finish[known])
        return longest

    def latest(self, duration: Times, latency: Times, hold: Times, until: Times) -> Times:
        """When each task must end at the latest (n,) for its pipeline to end at `until` (p,)."""
        due = until[self.pipeline].astype(np.float64)
        begin = np.full(len(due) + 1, np.inf)  # the last one for NONE
        latency, hold = np.append(latency, 0.0), np.append(hold, 0.0)
        for level in reversed(self.levels):
            receiver, after = self.receiver[level], self.after[level]
            needed = np.minimum(begin[receiver] - latency[receiver], begin[after] - hold[after])
            due[level] = np.minimum(due[level], needed)
            begin[level] = due[level] - duration[level]
        return due


def trace_graph(pipeline: Integers, previous: Integers, source: Integers) -> TraceGraph:
    """The graph of tasks with those predecessors."""
    after, receiver = _inverse(previous), _inverse(source)
    waits = (previous != NONE).astype(np.int64) + (source != NONE)
    levels: list[Integers] = []
    level = np.flatnonzero(waits == 0)
    while len(level):
        levels.append(level)
        nexts = np.concatenate([after[level], receiver[level]])
        nexts = nexts[nexts != NONE]
        np.subtract.at(waits, nexts, 1)
        level = np.unique(nexts)
        level = level[waits[level] == 0]
    return TraceGraph(pipeline, previous, source, after, receiver, tuple(levels))


def _inverse(before: Integers) -> Integers:
    """For each task the one that names it, or NONE; each is named once at most."""
    after = np.full(len(before), NONE, dtype=np.int64)
    named = np.flatnonzero(before != NONE)
    after[before[named]] = named
    return after


_KIND = "job, replica, stage, chunk, task"


@relation(
    "stage_graph",
    reads=["stage_vertices", "stage_paths"],
    empty_without=["stage_paths"],
    columns=[
        "job iteration replica stage chunk micro_batch task vertex rank node started_ns ended_ns",
        "previous source",
        ("duration_ns", "BIGINT", "ns", "its own computation, without waiting for its inputs"),
        ("expected_ns", "DOUBLE", "ns", "what that should take, for its micro-batch (robust)"),
        ("spread_ns", "DOUBLE", "ns", "median deviation of such tasks"),
        ("basis", "VARCHAR", "", "the expectation comes from its own past or other pipelines"),
        ("work", "DOUBLE", "ratio", "its micro-batch against others, equal in all stages"),
        ("slack_ns", "BIGINT", "ns", "how much later it could begin, the iteration no longer"),
        "critical",
        ("wait_ns", "BIGINT", "ns", "the bubble before it"),
        ("latency_ns", "BIGINT", "ns", "how long its input was in transfer; NULL: no input"),
        ("baseline_latency_ns", "BIGINT", "ns", "the baseline of that"),
        "hold_ns baseline_hold_ns",
        ("clock_error_ns", "BIGINT", "ns", "by how much its instants may be off"),
    ],
    source="VenusTrace 3.3, Fig. 7, Appendix A",
)
def stage_graph() -> str:
    """The vertices of the trace graph, what each waits for, its expectation and slack."""
    return f"""
        SELECT v.* EXCLUDE (duration_ns), p.* EXCLUDE (vertex), e.spread_ns, e.basis
        FROM stage_vertices v JOIN stage_paths p USING (vertex)
        LEFT JOIN stage_expectation e USING ({_KIND})
    """
