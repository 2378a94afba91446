"""The rows of stage_tasks of ranks that are alike, of all of them at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from oncall.analysis.tasks.iteration_bounds import Block, started_ns, whole_blocks
from oncall.analysis.tasks.iteration_ends import Ends, iteration_ends
from oncall.analysis.tasks.iteration_numbers import NOT_NUMBERED
from oncall.analysis.tasks.neighbours import after
from oncall.analysis.tasks.pipeline_places import Place
from oncall.analysis.tasks.rank_calls import RECV, UNKNOWN, RankCalls
from oncall.analysis.tasks.schedules import Array
from oncall.analysis.tasks.task_calls import calls_inside
from oncall.analysis.tasks.task_lateness import Late
from oncall.analysis.tasks.task_positions import Tasks
from oncall.analysis.tasks.task_times import time_tasks, transfers_over
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


@dataclass(frozen=True)
class Labelled:
    """The tasks of `ranks` that are alike, `calls` the first of them.

    `replicas_alone`: nothing distinguishes forwards and backwards, what replicas exchange the
    iterations.
    """

    ranks: Sequence[RankCalls]
    blocks: list[Block]
    place: Place | None
    tasks: Tasks
    replicas_alone: bool = False

    @property
    def calls(self) -> RankCalls:
        return self.ranks[0]


def rows(one: Labelled, number: Array, late: Late, sent_ns: Array | None) -> list[dict[str, Any]]:
    """The ranks' tasks, what they received and sent, and the ends of iterations: columns as
    `_columns` joins them. `number` (ranks, blocks), `sent_ns` (ranks, tasks)."""
    tasks, many = one.tasks, _Many(one)
    if one.replicas_alone:
        return _rows_of_replicas(one, number)
    calls = many.calls
    inside = calls_inside(calls, tasks)
    times = time_tasks(calls, one.blocks, tasks, inside, late, sent_ns)
    mine = number[:, tasks.block]
    iteration = np.where(tasks.evaluation, NOT_NUMBERED, mine)
    numbered = (mine != NOT_NUMBERED) | tasks.evaluation
    late_ns, last_calls = late.of(inside)
    task = {
        "iteration": iteration,
        "task": np.where(tasks.evaluation, _EVALUATION, tasks.backward),
        "chunk": tasks.chunk,
        "micro_batch": tasks.micro_batch,
        "comm": many.comm(inside.positions, inside.first, inside.last > inside.first),
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
    parts = [many.part(task, numbered & times.seen)]
    for name, at in (("recv", tasks.recv_at), ("send", tasks.send_at)):
        these = np.flatnonzero(at >= 0)
        moved = _transfers(many, tasks, iteration, these, at[these], name)
        if name == "recv" and sent_ns is not None:
            # No call shows when it was over: no sooner than asked for and sent.
            came = np.maximum(calls.entered_ns[:, at[these]], sent_ns[:, these])
            was_sent = (sent_ns[:, these] >= 0) & (times.calls[these] == 0)
            over = np.where(was_sent, came, moved["ended_ns"])
            moved |= {"ended_ns": over, "whole": over >= 0}
        parts.append(many.part(moved, numbered[:, these]))
    trained = tasks.block[~tasks.evaluation]
    last = np.full(len(one.blocks), UNKNOWN)
    over_ns, next_ns = np.full((2, len(one.ranks), len(one.blocks)), UNKNOWN)
    last_call = np.append(inside.positions, UNKNOWN)[np.where(times.calls > 0, inside.last - 1, -1)]
    for at in (last_call, tasks.send_at, tasks.recv_at):
        np.maximum.at(last, trained, at[~tasks.evaluation])
    np.maximum.at(over_ns.T, trained, times.ended_ns[:, ~tasks.evaluation].T)
    opening = np.flatnonzero(np.diff(tasks.block, prepend=-1))
    next_ns[:, tasks.block[opening] - 1] = times.started_ns[:, opening]
    next_ns[:, -1] = UNKNOWN
    return parts + _rows_of_ends(one, number, last, over_ns, next_ns)


def _rows_of_ends(
    one: Labelled,
    number: Array,
    last: Array,
    over_ns: Array,
    next_ns: Array,
    whole: Array | None = None,
) -> list[dict[str, Any]]:
    """The ends of iterations, of ranks of which the same is known at a time."""
    known = np.concatenate([over_ns >= 0, next_ns >= 0], axis=1)
    _, kind = np.unique(known, axis=0, return_inverse=True)
    parts = []
    for each in np.unique(kind).tolist():
        mine = np.flatnonzero(kind.ravel() == each)
        few = replace(one, ranks=[one.ranks[i] for i in mine.tolist()])
        many = _Many(few)
        for ends in iteration_ends(many.calls, one.blocks, last, over_ns[mine], next_ns[mine]):
            parts.append(_ends(many, ends, number[mine], whole))
    return parts


def _rows_of_replicas(one: Labelled, number: Array) -> list[dict[str, Any]]:
    """Iterations of ranks that exchange gradients and parameters only: what they compute before
    the first exchange is not distinguished."""
    blocks, many = one.blocks, _Many(one)
    if not blocks:
        return []
    begins = np.array([block.begin for block in blocks])
    started = started_ns(many.calls, blocks)
    exchanged = np.maximum(many.calls.entered_ns[:, begins], started)
    seen = (started >= 0) & ~np.array([block.torn_before for block in blocks])
    none = np.full(len(blocks), UNKNOWN, dtype=np.int64)
    computed = Ends("other", np.arange(len(blocks)), started, exchanged, none, seen)
    whole = whole_blocks(blocks)
    parts = [_ends(many, computed, number, whole)]
    following = after(started, UNKNOWN)
    return parts + _rows_of_ends(one, number, begins - 1, exchanged, following, whole)


class _Many:
    """Ranks that are alike: the calls of the first with the times of all (ranks, calls)."""

    def __init__(self, one: Labelled) -> None:
        self.ranks = one.ranks
        self.calls = replace(
            one.calls,
            called_ns=np.stack([each.called_ns for each in one.ranks]),
            entered_ns=np.stack([each.entered_ns for each in one.ranks]),
            ended_ns=np.stack([each.ended_ns for each in one.ranks]),
        )
        self.shared = {
            "job": one.calls.job,
            "comms": one.calls.comms,
            "stage": 0 if one.place is None else one.place.stage,
            "source": "calls",
        }
        self.number = np.array([each.rank for each in one.ranks])[:, np.newaxis]

    def comm(self, positions: Array, index: Array, wanted: Array) -> Array:
        """The communicator, as a place in `comms`, of the call at each index of `positions`
        (ranks, n); UNKNOWN where not wanted."""
        if not len(positions):
            return np.full((len(self.ranks), len(index)), UNKNOWN, dtype=np.int64)
        at = positions[np.clip(index, 0, len(positions) - 1)]
        return np.where(wanted, np.stack([each.comm[at] for each in self.ranks]), UNKNOWN)

    def peer(self, at: Array) -> Array:
        """The other side of each call (ranks, n), UNKNOWN if it is not recorded."""
        peers = np.stack([each.peer[at] for each in self.ranks])
        return np.where(self.calls.peer_recorded[at], peers, UNKNOWN)

    def part(self, columns: Mapping[str, Array], kept: Array) -> dict[str, Any]:
        """The rows of which `kept` (ranks, n); each column has a value for every one of them, or
        the same for all ranks."""
        rows = {name: np.broadcast_to(v, kept.shape)[kept] for name, v in columns.items()}
        return self.shared | {"rank": np.broadcast_to(self.number, kept.shape)[kept]} | rows


def _ends(many: _Many, ends: Ends, number: Array, whole: Array | None = None) -> dict[str, Any]:
    """Rows of tasks at the ends of iterations; `whole` (blocks,): of which all was seen."""
    mine = number[:, ends.block]
    n = len(ends.block)
    columns = {
        "iteration": mine,
        "task": np.full(n, _TASKS.index(ends.task)),
        "chunk": np.zeros(n, dtype=np.int64),
        "comm": many.comm(np.arange(len(many.calls)), ends.at, ends.at >= 0),
        "started_ns": ends.started_ns,
        "ended_ns": ends.ended_ns,
        "calls": np.zeros(n, dtype=np.int64),
        "whole": (ends.ended_ns >= 0) & (True if whole is None else whole[ends.block]),
    }
    return many.part(columns, ends.shown & (mine != NOT_NUMBERED))


def _transfers(
    many: _Many, tasks: Tasks, iteration: Array, mine: Array, at: Array, name: str
) -> dict[str, Any]:
    """Columns of the Sends or Recvs of the tasks `mine`, at the positions `at`."""
    calls = many.calls
    ended = np.where(_with_others(calls, tasks)[at], UNKNOWN, transfers_over(calls)[:, at])
    codes = {False: _TASKS.index(f"forward_{name}"), True: _TASKS.index(f"backward_{name}")}
    return {
        "iteration": iteration[:, mine],
        "task": np.where(tasks.backward[mine], codes[True], codes[False]),
        "chunk": tasks.chunk[mine],
        "micro_batch": tasks.micro_batch[mine],
        "peer": many.peer(at),
        "comm": many.comm(np.arange(len(calls)), at, np.ones(len(at), dtype=np.bool_)),
        "started_ns": calls.entered_ns[:, at],
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


def columns_of(parts: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
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
