"""What a rank did itself in each step: kernels and operators by name and shape, launches, data
loading, garbage collection, and how long nothing of it ran.

A step lasts from the begin of one `ProfilerStep` to that of the next; without these, from one
optimizer's step to the next; else the trace is one. Where a device ran anything, kernels count in
the steps that the device was in.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]

Edges: TypeAlias = tuple[int, int]
Row: TypeAlias = tuple[str, str | None, int | None, int]

KINDS = ("kernel", "operator", "launch", "runtime", "loader", "garbage", "collective")
_NUMBER = {kind: number for number, kind in enumerate(KINDS)}
_MOST_NAMES = 64  # of kernels or operators a step: all others take hardly any time
_LONGEST_NAME = 400  # characters: templates of C++
_STEP = re.compile(r"ProfilerStep#(\d{1,18})")
_OPTIMIZER = re.compile(r"Optimizer\.step#")
_LOADER = re.compile(r"enumerate\(DataLoader\)#")
_GARBAGE = re.compile(r"(?i)(python )?gc|garbage[ _-]collect(ion|or)?")
# Operators in which a rank may wait for others, or that only hold others.
_NO_WORK = re.compile(r"c10d|nccl|gloo|autograd::engine|ProfilerStep|wait_tensor|DistributedData")


@dataclass
class Spans:
    """What ran when: (kind, name, thread or stream, begin, end), one after another, as numbers."""

    values: array[int] = field(default_factory=lambda: array("q"))
    names: dict[str, int] = field(default_factory=dict)

    def add(self, kind: str, name: str, line: int, begin_ns: int, end_ns: int) -> None:
        number = self.names.setdefault(name[:_LONGEST_NAME], len(self.names))
        self.values.extend((_NUMBER[kind], number, line, begin_ns, end_ns))

    def of(self, *kinds: str) -> Array:
        """Those of some kinds (n, 5), in order of line and begin; who holds another comes first."""
        every = np.frombuffer(self.values, dtype=np.int64).reshape(-1, 5)
        chosen = every[np.isin(every[:, 0], [_NUMBER[kind] for kind in kinds])]
        return chosen[np.lexsort((-chosen[:, 4], chosen[:, 3], chosen[:, 2]))]


class Named(NamedTuple):
    """What the program named, on its thread and, where it ran anything there, on the device."""

    name: str
    host_ns: tuple[int, int]
    device_ns: tuple[int, int] | None


class Work(NamedTuple):
    """How long one kind of work took in a step. `times`: how often; None: only the sum counts."""

    step: int
    begin_ns: int
    kind: str
    name: str | None
    times: int | None
    spent_ns: int


def called(*shape: Any) -> str:
    """What the sizes of an operator's inputs, or of a kernel's grid, add to its name."""
    sizes = [str(size).replace(" ", "") for size in shape if size]
    return " " + " ".join(sizes)[:160] if sizes else ""


def is_work(name: str) -> bool:
    """Whether an operator does something itself."""
    return _NO_WORK.search(name) is None


def take_named(spans: Spans, named: Iterable[Named]) -> None:
    """Add the data loading and the garbage collections among what the program named."""
    for one in named:
        for kind, pattern in (("loader", _LOADER.match), ("garbage", _GARBAGE.fullmatch)):
            if pattern(one.name):
                spans.add(kind, kind, 0, *one.host_ns)


def work_of(spans: Spans, named: Sequence[Named]) -> list[Work]:
    """The work of each step; nothing where only collectives were profiled."""
    take_named(spans, named)
    device, names = spans.of("kernel"), list(spans.names)
    operators, alone = _operators(spans, names)
    ran = device if len(device) else alone
    if not len(ran):
        return []
    waits = np.concatenate([ran, spans.of("collective")])
    others = {kind: spans.of(kind) for kind in ("launch", "loader", "garbage")}
    on_host = [] if len(device) else [spans.of("operator"), *others.values()]
    busy = np.concatenate([waits, *on_host])
    found: list[Work] = []
    for number, host, there in _steps(named, busy):
        edges = there if len(device) else host
        rows = _by_name("kernel", device, edges, names)
        rows += _by_name("operator", operators, host, names)
        for kind, those in others.items():
            count, spent_ns = _clipped(those, host)
            rows.append((kind, None, count if kind == "launch" else None, spent_ns))
        length_ns = edges[1] - edges[0]
        rows += [
            ("wait", None, None, _covered(waits, edges) - _covered(ran, edges)),
            ("idle", None, None, length_ns - _covered(busy, edges)),
            ("step", None, None, length_ns),
        ]
        found += [Work(number, edges[0], *row) for row in rows]
    return found


def _steps(named: Sequence[Named], every: Array) -> list[tuple[int, Edges, Edges]]:
    """The number of each step, from when to when it lasted on the host, and on the device."""
    ordered = sorted(named, key=lambda one: one.host_ns)
    steps = [(int(found[1]), one) for one in ordered if (found := _STEP.match(one.name))]
    numbers = [number for number, _ in steps]
    edges = [(one.host_ns[0], (one.device_ns or one.host_ns)[0]) for _, one in steps]
    edges += [(one.host_ns[1], (one.device_ns or one.host_ns)[1]) for _, one in steps[-1:]]
    if not steps:
        ends = [one for one in ordered if _OPTIMIZER.match(one.name)]
        edges = [(one.host_ns[1], (one.device_ns or one.host_ns)[1]) for one in ends]
        numbers = list(range(len(edges) - 1))
    if not numbers:
        whole = int(every[:, 3].min()), int(every[:, 4].max())
        return [(0, whole, whole)]
    return [
        (number, (host, host_end), (there, there_end))
        for number, ((host, there), (host_end, there_end)) in zip(
            numbers, pairwise(edges), strict=True
        )
        if host < host_end and there < there_end
    ]


def _operators(spans: Spans, names: Sequence[str]) -> tuple[Array, Array]:
    """The operators (n, 5) that do something, each without the time that what it holds takes: its
    end is moved by as much; and those (m, 5) that hold nothing."""
    every = spans.of("operator", "launch", "runtime")
    rows = every.tolist()
    ends, holds = [row[4] for row in rows], [False] * len(rows)
    holding: list[int] = []
    for at, (_, _, line, begin, end) in enumerate(rows):
        while holding and (rows[holding[-1]][2] != line or rows[holding[-1]][4] <= begin):
            holding.pop()
        if holding:
            ends[holding[-1]] -= end - begin
            holds[holding[-1]] = True
        holding.append(at)
    works = np.array([is_work(name) for name in names], dtype=np.bool_)
    works = (every[:, 0] == KINDS.index("operator")) & works[every[:, 1]]
    own = every.copy()
    own[:, 4] = ends
    return own[works], every[works & ~np.array(holds, dtype=np.bool_)]


def _by_name(kind: str, spans: Array, edges: Edges, names: Sequence[str]) -> list[Row]:
    """How often and how long each kernel or operator ran that began within a step."""
    inside = spans[(spans[:, 3] >= edges[0]) & (spans[:, 3] < edges[1])]
    number, of = np.unique(inside[:, 1], return_inverse=True)
    count, spent_ns = np.bincount(of), np.zeros(len(number), dtype=np.int64)
    np.add.at(spent_ns, of, inside[:, 4] - inside[:, 3])
    longest = np.argsort(-spent_ns, kind="stable")[:_MOST_NAMES]
    return [(kind, names[number[at]], int(count[at]), int(spent_ns[at])) for at in longest]


def _clipped(spans: Array, edges: Edges) -> tuple[int, int]:
    """How many spans lie in a step at least in part, and how much of them does."""
    inside = np.minimum(spans[:, 4], edges[1]) - np.maximum(spans[:, 3], edges[0])
    return int((inside > 0).sum()), int(inside[inside > 0].sum())


def _covered(spans: Array, edges: Edges) -> int:
    """How much of a step some span covers."""
    begin, end = np.clip(spans[:, 3], *edges), np.clip(spans[:, 4], *edges)
    order = np.argsort(begin, kind="stable")
    until = np.maximum.accumulate(end[order])
    before = np.append(edges[0], until[:-1])
    return int(np.maximum(until - np.maximum(before, begin[order]), 0).sum())
