"""Each rank's calls as tasks: iteration, micro-batch, forward or backward (VenusTrace 3.3).

Computed from the operations of one node alone, so that nodes answer with tasks instead of calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, TypeVar

import duckdb
import numpy as np

from oncall.analysis.tasks import thresholds
from oncall.analysis.tasks.evaluation_blocks import micro_batch_counts, split_evaluations
from oncall.analysis.tasks.iteration_bounds import (
    Block,
    find_blocks,
    left_together,
    replica_blocks,
    whole_blocks,
)
from oncall.analysis.tasks.iteration_numbers import NOT_NUMBERED, Numbered, number_blocks
from oncall.analysis.tasks.pipeline_layouts import pipeline_comms, read_memberships
from oncall.analysis.tasks.pipeline_places import Found, Place, find_places, seat
from oncall.analysis.tasks.rank_calls import REPLICAS, TASK, UNKNOWN, RankCalls, read_calls
from oncall.analysis.tasks.schedule_fit import Stated
from oncall.analysis.tasks.schedules import Array
from oncall.analysis.tasks.task_inputs import Computed, inputs_sent
from oncall.analysis.tasks.task_lateness import lateness, together
from oncall.analysis.tasks.task_positions import place_alone, place_tasks
from oncall.analysis.tasks.task_rows import TASK_COLUMNS, Labelled, columns_of, rows
from oncall.evidence import relation

_Value = TypeVar("_Value")
_CALLS_AT_ONCE = 1 << 17  # of which the times take 3 MB
_ROWS_AT_ONCE = 1 << 17  # of tasks, 20 MB


@relation(
    "labelled_tasks",
    reads=["operations", "members"],
    optional=["in_flight", "jobs", "ranks"],
    columns=TASK_COLUMNS,
    source="VenusTrace 3.3",
    at="node",
)
def labelled_tasks(con: duckdb.DuckDBPyConnection) -> Iterator[Mapping[str, Any]]:
    """The tasks of every rank whose operations are all here; none if its calls show no tasks."""
    stated = _stated(con)
    sizes = dict(
        con.execute(
            "SELECT comm, greatest(max(size), count(*)) FROM members WHERE comm IS NOT NULL "
            "GROUP BY comm"
        ).fetchall()
    )
    found = _found(con)
    for job in [*found]:
        said = stated.get(job, Stated())
        places = _places(con, job, found[job], said)
        labelled = _labelled(found.pop(job), said, places)
        parts: list[Mapping[str, Any]] = []
        held = 0
        for part in _rows_of(labelled, sizes):
            parts.append(part)
            held += len(part["started_ns"])
            if held > _ROWS_AT_ONCE:
                yield columns_of(parts)
                parts, held = [], 0
        yield columns_of(parts)


def _found(con: duckdb.DuckDBPyConnection) -> dict[str, list[Found]]:
    by_job: dict[str, list[Found]] = {}
    blocks: dict[int, list[Block]] = {}
    for calls in read_calls(con):
        if calls.alike not in blocks:
            blocks[calls.alike] = find_blocks(calls)
        by_job.setdefault(calls.job, []).append(Found(calls, blocks[calls.alike]))
    return by_job


def _places(
    con: duckdb.DuckDBPyConnection, job: str, ranks: Sequence[Found], stated: Stated
) -> dict[int, Place]:
    comms = {comm for one in ranks for comm in pipeline_comms(one.calls)}
    return find_places(ranks, read_memberships(con, job, sorted(comms)), stated)


def _stated(con: duckdb.DuckDBPyConnection) -> dict[str, Stated]:
    rows = con.execute(
        "SELECT job, any_value(pp), any_value(micro_batches), any_value(chunks), "
        "any_value(schedule) FROM jobs GROUP BY job"
    ).fetchall()
    return {job: Stated(*values) for job, *values in rows}


def _labelled(ranks: Sequence[Found], stated: Stated, places: dict[int, Place]) -> list[Labelled]:
    """The tasks of the ranks of one job that are here, of ranks that are alike together."""
    labelled = _of_pipeline([one for one in ranks if one.is_chained], places)
    labelled += _all_alone([one for one in ranks if not one.is_chained], stated)
    return [one for one in labelled if len(one.tasks) or one.replicas_alone]


def _rows_of(labelled: list[Labelled], sizes: Mapping[int, int]) -> Iterator[dict[str, Any]]:
    """Columns of their rows, some of them at a time; the ranks' calls go with their rows."""
    calls = [each for one in labelled for each in one.ranks]
    began_ns = left_together(calls, [one.blocks for one in labelled for _ in one.ranks])
    known = [each for one in labelled for each in [_numbered(one)] * len(one.ranks)]
    numbers = number_blocks(
        [replace(one, began_ns=mine) for one, mine in zip(known, began_ns, strict=True)],
        thresholds.TOGETHER,
    )
    late = lateness(calls, sizes)
    sent = _inputs_sent(labelled, numbers)
    del calls, known, began_ns
    each = zip(_taken(numbers), _taken(late), _taken(sent), strict=True)
    while labelled:
        for few in _batches(labelled.pop(0)):
            number, behind, sent_ns = zip(*islice(each, len(few.ranks)), strict=True)
            known_ns = [one for one in sent_ns if one is not None]
            yield from rows(
                few, np.stack(number), together(behind), np.stack(known_ns) if known_ns else None
            )


def _taken(values: Sequence[_Value]) -> Iterator[_Value]:
    """One value after the other, each of which is let go."""
    left = [*reversed(values)]
    while left:
        yield left.pop()


def _inputs_sent(labelled: Sequence[Labelled], numbers: Sequence[Array]) -> Sequence[Array | None]:
    """When the inputs of each rank's tasks were sent. Needed where some rank makes no call within
    its tasks and nothing shows when its Recvs were over."""
    any_ends = any(one.calls.knows_ends for one in labelled)
    if any_ends or all((one.calls.use == TASK).any() for one in labelled):
        return [None] * len(numbers)
    ranks = [(one, calls) for one in labelled for calls in one.ranks]
    return inputs_sent(
        [_computed(*each, number) for each, number in zip(ranks, numbers, strict=True)]
    )


def _computed(one: Labelled, calls: RankCalls, number: Array) -> Computed | None:
    if one.place is None:
        return None
    counted = (number[one.tasks.block] != NOT_NUMBERED) & ~one.tasks.evaluation
    iteration = np.where(counted, number[one.tasks.block], UNKNOWN)
    return Computed(calls, one.blocks, one.tasks, one.place.stage, one.place.stages, iteration)


def _numbered(one: Labelled) -> Numbered:
    """What shows the iterations of a rank's blocks, but for when they began."""
    n, tasks, calls = len(one.blocks), one.tasks, one.calls
    trains, whole = np.zeros((2, n), dtype=np.bool_)
    trains[tasks.block[~tasks.evaluation]] = True
    whole[tasks.block[tasks.complete & ~tasks.evaluation]] = True
    if one.replicas_alone:
        trains[:], whole = True, whole_blocks(one.blocks)
    counting = np.flatnonzero(calls.use == (REPLICAS if one.replicas_alone else TASK))
    count = np.full(n, UNKNOWN, dtype=np.int64)
    if len(counting):
        counting = counting[calls.comm[counting] == np.bincount(calls.comm[counting]).argmax()]
        first = np.searchsorted(counting, [block.begin for block in one.blocks])
        until = np.array([block.end for block in one.blocks])
        there = np.append(counting, len(calls))[first]
        count = np.where(there < until, np.append(calls.seq, UNKNOWN)[there], UNKNOWN)
    return Numbered(one.blocks, trains, whole, np.full(n, UNKNOWN, dtype=np.int64), count)


def _batches(one: Labelled) -> Iterator[Labelled]:
    """Some ranks at a time, as many as the processor's cache has room for."""
    each = max(1, _CALLS_AT_ONCE // max(1, len(one.calls)))
    ranks, one = _taken(one.ranks), replace(one, ranks=())
    while few := list(islice(ranks, each)):
        yield replace(one, ranks=few)


def _of_pipeline(ranks: Sequence[Found], places: Mapping[int, Place]) -> list[Labelled]:
    """The tasks of pipeline ranks whose places are known, with the blocks that they are in."""
    alike: dict[tuple[int, Place], list[Found]] = {}
    for one in ranks:
        if one.calls.rank in places:
            alike.setdefault((one.calls.alike, places[one.calls.rank]), []).append(one)
    members = list(alike.values())
    seated = [seat(many[0], place, len(many)) for (_, place), many in alike.items()]
    divided = split_evaluations(seated)
    seated = [replace(one, blocks=blocks) for one, blocks in zip(seated, divided, strict=True)]
    counts = micro_batch_counts(seated)
    return [
        Labelled([each.calls for each in many], one.blocks, one.place, place_tasks(one, mine))
        for one, mine, many in zip(seated, counts, members, strict=True)
    ]


def _all_alone(ranks: Sequence[Found], stated: Stated) -> list[Labelled]:
    """The tasks of ranks that send to no other stage."""
    alike: dict[int, list[Found]] = {}
    for one in ranks:
        alike.setdefault(one.calls.alike, []).append(one)
    return [labelled for many in alike.values() for labelled in _alone(many, stated)]


def _alone(ranks: Sequence[Found], stated: Stated) -> list[Labelled]:
    """The same for ranks that make equal calls. Even these may differ in how pauses separate
    iterations."""
    calls, blocks = [one.calls for one in ranks], ranks[0].blocks
    alone = (calls[0].use == TASK).any() and stated.stages in (None, 1)
    tasks = place_alone(calls[0], blocks if alone else [], stated.micro_batches)
    if alone or stated.stages not in (None, 1):
        return [Labelled(calls, blocks, None, tasks)]
    divided: dict[tuple[int, ...], tuple[list[Block], list[RankCalls]]] = {}
    for one in calls:
        blocks = replica_blocks(one)
        divided.setdefault(tuple(b.begin for b in blocks), (blocks, []))[1].append(one)
    return [
        Labelled(mine, blocks, None, tasks, replicas_alone=True)
        for blocks, mine in divided.values()
    ]
