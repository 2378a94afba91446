"""Each rank's calls as tasks: iteration, micro-batch, forward or backward (VenusTrace 3.3).

Computed from the operations of one node alone, so that nodes answer with tasks instead of calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import duckdb
import numpy as np

from oncall.analysis.calls.iteration_bounds import Block, find_blocks, left_together
from oncall.analysis.calls.rank_calls import RECV, REPLICAS, TASK, UNKNOWN, RankCalls, read_calls
from oncall.analysis.calls.schedules import Array
from oncall.analysis.calls.thresholds import Thresholds
from oncall.analysis.tasks.evaluation_blocks import split_evaluations
from oncall.analysis.tasks.iteration_ends import Ends, iteration_ends
from oncall.analysis.tasks.iteration_numbers import NOT_NUMBERED, Numbered, number_blocks
from oncall.analysis.tasks.micro_batch_counts import micro_batch_counts
from oncall.analysis.tasks.pipeline_layouts import pipeline_comms, read_memberships
from oncall.analysis.tasks.pipeline_places import Found, Place, Places, find_places, seat
from oncall.analysis.tasks.replica_iterations import replica_blocks, whole_blocks
from oncall.analysis.tasks.schedule_fit import Stated
from oncall.analysis.tasks.task_calls import calls_inside
from oncall.analysis.tasks.task_inputs import Computed, inputs_sent
from oncall.analysis.tasks.task_lateness import Late, lateness
from oncall.analysis.tasks.task_positions import Tasks, place_alone, place_tasks
from oncall.analysis.tasks.task_times import time_tasks, transfers_over
from oncall.evidence import params_of, relation
from oncall.evidence.columns import Words
from oncall.evidence.schema import BY_NAME

TASK_COLUMNS = [(c.name, c.type, c.unit, c.meaning) for c in BY_NAME["stage_tasks"].columns]
_TASKS = (
    "forward",
    "backward",
    "forward_recv",
    "backward_recv",
    "forward_send",
    "backward_send",
    "evaluation",
    "gradients",
    "embedding",
    "parameters",
    "optimizer",
    "checkpoint",
    "other",
)
_EVALUATION = _TASKS.index("evaluation")


@relation(
    "labelled_tasks",
    reads=["operations", "members"],
    optional=["in_flight", "jobs", "ranks"],
    columns=TASK_COLUMNS,
    source="VenusTrace 3.3",
    at="node",
    params=params_of(Thresholds),
)
def labelled_tasks(con: duckdb.DuckDBPyConnection, **params: Any) -> Mapping[str, Any]:
    """The tasks of every rank of which all operations are here; none where calls do not show it."""
    thresholds = Thresholds(**params)
    stated = _stated(con)
    sizes = dict(
        con.execute(
            "SELECT comm, greatest(max(size), count(*)) FROM members WHERE comm IS NOT NULL "
            "GROUP BY comm"
        ).fetchall()
    )
    parts = []
    for job, ranks in _found(con, thresholds).items():
        places = _places(con, job, ranks, stated.get(job, Stated()))
        parts += _label_job(ranks, stated.get(job, Stated()), places.of_rank, sizes, thresholds)
    return _columns(parts)


@relation(
    "unlabelled_jobs",
    reads=["operations", "members"],
    optional=["in_flight", "jobs", "labelled_tasks"],
    columns=[
        ("job", "VARCHAR", "", "a job with pipeline transfers of which no task is labelled"),
        ("why", "VARCHAR", "", "why its tasks are not known"),
    ],
    source="VenusTrace 3.3",
    params=params_of(Thresholds, of="labelled_tasks"),
)
def unlabelled_jobs(con: duckdb.DuckDBPyConnection, **params: Any) -> Mapping[str, Any]:
    """Why ranks of a pipeline whose operations are here have no labels."""
    stated = _stated(con)
    silent = con.execute(
        "SELECT DISTINCT job FROM operations ANTI JOIN labelled_tasks USING (job) "
        "WHERE kind = 'p2p' AND job IS NOT NULL"
    ).fetchall()
    found = _found(con, Thresholds(**params)) if silent else {}
    why = {
        job: _places(con, job, found.get(job, []), stated.get(job, Stated())).why_not
        for (job,) in sorted(silent)
    }
    known = {job: reason for job, reason in why.items() if reason}
    return {"job": list(known), "why": list(known.values())}


def _found(con: duckdb.DuckDBPyConnection, thresholds: Thresholds) -> dict[str, list[Found]]:
    by_job: dict[str, list[Found]] = {}
    for calls in read_calls(con, thresholds):
        by_job.setdefault(calls.job, []).append(Found(calls, find_blocks(calls)))
    return by_job


def _places(
    con: duckdb.DuckDBPyConnection, job: str, ranks: Sequence[Found], stated: Stated
) -> Places:
    comms = {comm for one in ranks for comm in pipeline_comms(one.calls)}
    return find_places(ranks, read_memberships(con, job, sorted(comms)), stated)


def _stated(con: duckdb.DuckDBPyConnection) -> dict[str, Stated]:
    rows = con.execute(
        "SELECT job, any_value(pp), any_value(micro_batches), any_value(chunks), "
        "any_value(schedule) FROM jobs GROUP BY job"
    ).fetchall()
    return {job: Stated(*values) for job, *values in rows}


def _label_job(
    ranks: Sequence[Found],
    stated: Stated,
    places: dict[int, Place],
    sizes: Mapping[int, int],
    thresholds: Thresholds,
) -> list[dict[str, Any]]:
    """Columns of the tasks of the ranks of one job that are here, some for each rank."""
    places = _pipeline_length(places)
    labelled = _of_pipeline([one for one in ranks if one.is_chained], places)
    labelled += [_alone(one, stated) for one in ranks if not one.is_chained]
    labelled = [one for one in labelled if len(one.tasks) or one.replicas_alone]
    began_ns = left_together([one.calls for one in labelled], [one.blocks for one in labelled])
    numbers = number_blocks(list(map(_numbered, labelled, began_ns)), thresholds.together)
    late = lateness([one.calls for one in labelled], sizes)
    sent = _inputs_sent(labelled, numbers)
    parts = []
    for one, number, mine, sent_ns in zip(labelled, numbers, late, sent, strict=True):
        parts += _rows(one, number, mine, sent_ns)
    return parts


def _inputs_sent(labelled: Sequence[_Labelled], numbers: Sequence[Array]) -> Sequence[Array | None]:
    """When the inputs of tasks were sent, where some rank makes no call within its tasks and
    nothing shows when its Recvs were over."""
    any_ends = any(one.calls.knows_ends for one in labelled)
    if any_ends or all((one.calls.use == TASK).any() for one in labelled):
        return [None] * len(labelled)
    return inputs_sent([_computed(*each) for each in zip(labelled, numbers, strict=True)])


def _computed(one: _Labelled, number: Array) -> Computed | None:
    if one.place is None or one.place.stage is None or one.place.stages is None:
        return None
    counted = (number[one.tasks.block] != NOT_NUMBERED) & ~one.tasks.evaluation
    iteration = np.where(counted, number[one.tasks.block], UNKNOWN)
    return Computed(one.calls, one.blocks, one.tasks, one.place.stage, one.place.stages, iteration)


def _numbered(one: _Labelled, began_ns: Array) -> Numbered:
    """What shows the iterations of a rank's blocks."""
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
    return Numbered(one.blocks, trains, whole, began_ns, count)


@dataclass(frozen=True)
class _Labelled:
    """A rank's tasks; `stage` is NULL where nothing shows how long the pipeline is.

    `replicas_alone`: nothing distinguishes forwards and backwards, what replicas exchange the
    iterations.
    """

    calls: RankCalls
    blocks: list[Block]
    place: Place | None
    tasks: Tasks
    replicas_alone: bool = False


def _pipeline_length(places: dict[int, Place]) -> dict[int, Place]:
    """Where nothing shows how many stages there are, the first stage knows how many follow it."""
    if not any(place.is_first for place in places.values()):
        return places
    stages = 1 + max(place.behind for place in places.values())
    return {
        rank: replace(place, stages=stages) if place.stages is None else place
        for rank, place in places.items()
    }


def _of_pipeline(ranks: Sequence[Found], places: Mapping[int, Place]) -> list[_Labelled]:
    """The tasks of ranks of a pipeline whose places are known, with the blocks they are in."""
    seated = [seat(one, places[one.calls.rank]) for one in ranks if one.calls.rank in places]
    divided = split_evaluations(seated)
    seated = [replace(one, blocks=blocks) for one, blocks in zip(seated, divided, strict=True)]
    counts = micro_batch_counts(seated)
    return [
        _Labelled(one.calls, one.blocks, one.place, place_tasks(one, mine))
        for one, mine in zip(seated, counts, strict=True)
    ]


def _alone(one: Found, stated: Stated) -> _Labelled:
    """The tasks of a rank that sends to no other stage."""
    calls, blocks = one.calls, one.blocks
    alone = (calls.use == TASK).any() and stated.stages in (None, 1)
    tasks = place_alone(calls, blocks if alone else [], stated.micro_batches)
    if alone or stated.stages not in (None, 1):
        return _Labelled(calls, blocks, None, tasks)
    return _Labelled(calls, replica_blocks(calls), None, tasks, replicas_alone=True)


# ------------------------------------------------------------------------ rows


def _rows(one: _Labelled, number: Array, late: Late, sent_ns: Array | None) -> list[dict[str, Any]]:
    """The rank's tasks, what they received and sent, and the ends of iterations: columns as
    `_columns` joins them."""
    calls, tasks = one.calls, one.tasks
    if one.replicas_alone:
        return _rows_of_replicas(one, number)
    inside = calls_inside(calls, tasks)
    times = time_tasks(calls, one.blocks, tasks, inside, late, sent_ns)
    stage = UNKNOWN if one.place is None else one.place.stage
    iteration = np.where(tasks.evaluation, NOT_NUMBERED, number[tasks.block])
    shared: dict[str, Any] = {
        "job": calls.job,
        "comms": calls.comms,
        "rank": calls.rank,
        "stage": (0 if one.place is None else None) if stage in (None, UNKNOWN) else stage,
        "source": "calls",
    }
    numbered = (number[tasks.block] != NOT_NUMBERED) | tasks.evaluation
    kept = numbered & times.seen
    late_ns, last_calls = late.of(inside)
    task = {
        "iteration": iteration,
        "task": np.where(tasks.evaluation, _EVALUATION, tasks.backward),
        "chunk": tasks.chunk,
        "micro_batch": tasks.micro_batch,
        "comm": _comm(calls, inside.positions, inside.first, inside.last > inside.first),
        "started_ns": times.started_ns,
        "ended_ns": times.ended_ns,
        "first_call_ns": times.first_call_ns,
        "last_call_ns": times.last_call_ns,
        "calls": times.calls,
        "own_ns": times.own_ns,
        "late_ns": late_ns,
        "last_calls": last_calls,
        "whole": inside.whole & (times.ended_ns >= 0),
    }
    parts = [shared | {name: values[kept] for name, values in task.items()}]
    for name, at in (("recv", tasks.recv_at), ("send", tasks.send_at)):
        mine = np.flatnonzero(numbered & (at >= 0))
        parts.append(shared | _transfers(calls, tasks, iteration, mine, at[mine], name))
        if name == "recv" and sent_ns is not None:
            # No call shows when it was over: no sooner than asked for and sent.
            came = np.maximum(calls.entered_ns[at[mine]], sent_ns[mine])
            was_sent = (sent_ns[mine] >= 0) & (times.calls[mine] == 0)
            over = np.where(was_sent, came, parts[-1]["ended_ns"])
            parts[-1] |= {"ended_ns": over, "whole": over >= 0}
    trained = tasks.block[~tasks.evaluation]
    last, over_ns, next_ns = np.full((3, len(one.blocks)), UNKNOWN)
    last_call = np.append(inside.positions, UNKNOWN)[np.where(times.calls > 0, inside.last - 1, -1)]
    for at in (last_call, tasks.send_at, tasks.recv_at):
        np.maximum.at(last, trained, at[~tasks.evaluation])
    np.maximum.at(over_ns, trained, times.ended_ns[~tasks.evaluation])
    opening = np.flatnonzero(np.diff(tasks.block, prepend=-1))
    next_ns[tasks.block[opening] - 1] = times.started_ns[opening]
    next_ns[-1] = UNKNOWN
    for ends in iteration_ends(calls, one.blocks, last, over_ns, next_ns):
        parts.append(shared | _ends(calls, ends, number))
    return parts


def _rows_of_replicas(one: _Labelled, number: Array) -> list[dict[str, Any]]:
    """Iterations of a rank that exchanges gradients and parameters only: what it computes before
    the first exchange is not distinguished."""
    calls, blocks = one.calls, one.blocks
    if not blocks:
        return []
    shared = {
        "job": calls.job,
        "comms": calls.comms,
        "rank": calls.rank,
        "stage": 0,
        "source": "calls",
    }
    begins = np.array([block.begin for block in blocks])
    started = np.array([block.started_ns for block in blocks])
    exchanged = np.maximum(calls.entered_ns[begins], started)
    seen = np.flatnonzero((started >= 0) & ~np.array([block.torn_before for block in blocks]))
    none = np.full(len(seen), UNKNOWN, dtype=np.int64)
    computed = Ends("other", seen, started[seen], exchanged[seen], none)
    following = np.append(started[1:], UNKNOWN)
    found = iteration_ends(calls, blocks, begins - 1, exchanged, following)
    whole = whole_blocks(blocks)
    rows = [_ends(calls, ends, number) for ends in (computed, *found)]
    for ends, row in zip((computed, *found), rows, strict=True):
        row["whole"] &= whole[ends.block][number[ends.block] != NOT_NUMBERED]
    return [shared | row for row in rows]


def _ends(calls: RankCalls, ends: Ends, number: Array) -> dict[str, Any]:
    """Rows of tasks at the ends of iterations."""
    kept = number[ends.block] != NOT_NUMBERED
    n = int(kept.sum())
    at = ends.at[kept]
    return {
        "iteration": number[ends.block][kept],
        "task": np.full(n, _TASKS.index(ends.task)),
        "chunk": np.zeros(n, dtype=np.int64),
        "comm": _comm(calls, np.arange(len(calls)), at, at >= 0),
        "started_ns": ends.started_ns[kept],
        "ended_ns": ends.ended_ns[kept],
        "calls": np.zeros(n, dtype=np.int64),
        "whole": ends.ended_ns[kept] >= 0,
    }


def _transfers(
    calls: RankCalls, tasks: Tasks, iteration: Any, mine: Array, at: Array, name: str
) -> dict[str, Any]:
    """Rows of the Sends or Recvs of the tasks `mine`, at the positions `at`."""
    ended = np.where(_with_others(calls, tasks)[at], UNKNOWN, transfers_over(calls)[at])
    codes = {False: _TASKS.index(f"forward_{name}"), True: _TASKS.index(f"backward_{name}")}
    return {
        "iteration": iteration[mine],
        "task": np.where(tasks.backward[mine], codes[True], codes[False]),
        "chunk": tasks.chunk[mine],
        "micro_batch": tasks.micro_batch[mine],
        "peer": np.where(calls.peer_recorded[at], calls.peer[at], UNKNOWN),
        "comm": _comm(calls, np.arange(len(calls)), at, np.ones(len(at), dtype=np.bool_)),
        "started_ns": calls.entered_ns[at],
        "ended_ns": ended,
        "calls": np.zeros(len(at), dtype=np.int64),
        "whole": ended >= 0,
    }


def _with_others(calls: RankCalls, tasks: Tasks) -> Array:
    """Which Sends and Recvs (calls,) are exchanged in one group call with both neighbours: where
    only calls are recorded, the call ends with the later of them, and of neither it is known
    when."""
    shared = np.zeros(len(calls), dtype=np.bool_)
    if calls.knows_ends or not tasks.chunk.any():
        return shared
    transfers = np.flatnonzero((calls.use <= RECV) & (calls.group >= 0))
    _, exchange, members = np.unique(
        calls.group[transfers], return_inverse=True, return_counts=True
    )
    shared[transfers] = members[exchange] > 1
    return shared


def _comm(calls: RankCalls, positions: Array, index: Array, wanted: Array) -> Array:
    """The communicator, as a place in `calls.comms`, of the call at each index of `positions`;
    UNKNOWN where not wanted."""
    if not len(positions):
        return np.full(len(index), UNKNOWN, dtype=np.int64)
    place = calls.comm[positions[np.clip(index, 0, len(positions) - 1)]]
    return np.where(wanted, place, UNKNOWN)


def _columns(parts: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """All parts' rows as columns of stage_tasks. In a part a number below 0 is NULL, of an
    iteration NOT_NUMBERED, and so is what it lacks; `comm` counts into its `comms`."""
    sizes = [len(part["started_ns"]) for part in parts]
    if not sum(sizes):
        return {name: [] for name, *_ in TASK_COLUMNS}
    joined: dict[str, Any] = {}
    for name, *_ in TASK_COLUMNS:
        if name in ("job", "source"):
            words = sorted({part[name] for part in parts})
            codes = [words.index(part[name]) for part in parts]
            joined[name] = Words(np.repeat(codes, sizes).astype(np.int32), words)
            continue
        null = NOT_NUMBERED if name == "iteration" else UNKNOWN
        pieces = [_piece(part.get(name), n, null) for part, n in zip(parts, sizes, strict=True)]
        values = np.concatenate(pieces)
        if name == "task":
            joined[name] = Words(values.astype(np.int32), _TASKS)
        elif name == "comm":
            joined[name] = _named(parts, sizes, values)
        else:
            unknown = values == null if name == "iteration" else values < 0
            joined[name] = np.ma.MaskedArray(values, mask=unknown)
    return joined


def _named(parts: Sequence[Mapping[str, Any]], sizes: Sequence[int], comm: Array) -> Any:
    """The communicators by name, each a place in those of its job."""
    comms = {part["job"]: part["comms"] for part in parts}
    begins = dict(zip(comms, np.cumsum([0, *map(len, comms.values())]).tolist(), strict=False))
    names = [name for mine in comms.values() for name in mine]
    place = np.repeat([begins[part["job"]] for part in parts], sizes) + np.maximum(comm, 0)
    unnamed = np.array([name is None for name in names])
    known = np.array([name or 0 for name in names], dtype=np.uint64)
    return np.ma.MaskedArray(known[place], mask=(comm < 0) | unnamed[place])


def _piece(values: Any, n: int, null: int) -> Array:
    """One part's values of a column, for every row."""
    if values is None:
        return np.full(n, null)
    return np.full(n, values) if np.ndim(values) == 0 else values
