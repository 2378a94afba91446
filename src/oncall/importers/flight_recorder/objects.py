"""The entries of a dump that Python has parsed, as columns: one pass a field.

For JSON, for what the reader of opcodes refuses, and where that was not built.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any, TypeAlias

import numpy as np

from oncall.importers.codes import Codes
from oncall.importers.documents import scalars
from oncall.importers.flight_recorder.rows import COMPLETED, MOST_FRAMES, STARTED, Array, Rows

_FIELDS = (
    "process_group",
    "pg_id",
    "collective_seq_id",
    "p2p_seq_id",
    "op_id",
    "record_id",
    "profiling_name",
    "time_created_ns",
    "input_sizes",
    "input_dtypes",
    "output_sizes",
    "state",
    "time_discovered_started_ns",
    "time_discovered_completed_ns",
    "retired",
    "timeout_ms",
    "is_p2p",
)
_MAX_DIMENSIONS = 64
_TOO_MANY = 2.0**62  # elements; a sum of two still fits 64 bits
_Frame: TypeAlias = tuple[str, str, str]
_STATES = {"completed": COMPLETED, "started": STARTED}


def rows_of(entries: Sequence[Mapping[str, Any]], budget: int) -> Rows:
    """Entries of a dump as columns; fields that older formats lack are 0, or derived.

    Raises ValueError, TypeError, KeyError or OverflowError on what PyTorch does not write. No more
    than `budget` tensors are looked at: a hostile file can refer to one list a million times, and
    what is hashed or compared is a scalar: of lists within lists that would never end.
    """
    column = _columns(entries)
    pairs, calls, dtypes = Codes(), Codes(), Codes()
    group = pairs.of(_pairs(column["process_group"], column["pg_id"]))
    if set(map(type, column["profiling_name"])) - {str}:
        raise ValueError("a call without a name")
    call = calls.of(column["profiling_name"])
    types: list[Sequence[str]] = [one or () for one in column["input_dtypes"]]
    if sum(map(len, types)) > budget:
        raise ValueError("more tensors than its size explains")
    scalars(chain.from_iterable(types))
    common = [one[0] if len(one) == 1 else _common(one) for one in types]
    stack, stacks = _stacks(entries)
    return Rows(
        pairs=[(str(name), str(desc)) for name, desc in pairs],
        calls=list(calls),
        group=group.astype(np.int64),
        pg_id=_integers(column["pg_id"]),
        call=call.astype(np.int64),
        dtype=np.array([-1 if one is None else dtypes[one] for one in common], dtype=np.int64),
        dtypes=[str(name) for name in dtypes],
        collective_seq=np.fromiter(column["collective_seq_id"], dtype=np.int64),
        p2p_seq=_integers(column["p2p_seq_id"]),
        op_id=_integers(column["op_id"]),
        record_id=_integers(column["record_id"]),
        created_ns=_integers(column["time_created_ns"]),
        started_ns=_integers(column["time_discovered_started_ns"]),
        ended_ns=_integers(column["time_discovered_completed_ns"]),
        timeout_ms=_integers(column["timeout_ms"]),
        duration_ms=_milliseconds(entries),
        input_elements=elements_of(column["input_sizes"], budget),
        output_elements=elements_of(column["output_sizes"], budget),
        state=np.array([_state(one) for one in column["state"]], dtype=np.int64),
        retired=np.fromiter(map(bool, column["retired"]), dtype=np.int64),
        is_p2p=np.array([-1 if one is None else bool(one) for one in column["is_p2p"]], np.int64),
        stack=stack,
        frames=stacks.__getitem__,
    )


def _stacks(entries: Sequence[Mapping[str, Any]]) -> tuple[Array, list[list[_Frame]]]:
    """Which stack each entry has (n,), -1 for none, and the stacks: many entries share a list, and
    many lists a frame."""
    found: list[list[_Frame]] = []
    stacks: dict[int, int] = {}  # by identity
    known: dict[int, _Frame] = {}
    codes = np.full(len(entries), -1, dtype=np.int64)
    for row, entry in enumerate(entries):
        frames = entry.get("frames")
        if frames:
            code = stacks.setdefault(id(frames), len(found))
            if code == len(found):
                found.append([_frame(frame, known) for frame in frames[:MOST_FRAMES]])
            codes[row] = code
    return codes, found


def _frame(frame: Mapping[str, Any], known: dict[int, _Frame]) -> _Frame:
    if id(frame) not in known:
        found = frame["name"], frame["filename"], frame["line"]
        scalars(found)
        known[id(frame)] = str(found[0]), str(found[1]), str(found[2])
    return known[id(frame)]


def _state(state: Any) -> int:
    return _STATES.get(state, 0) if isinstance(state, str) else 0


def _columns(entries: Sequence[Mapping[str, Any]]) -> dict[str, tuple[Any, ...]]:
    if not entries:
        return dict.fromkeys(_FIELDS, ())
    try:
        rows = list(map(itemgetter(*_FIELDS), entries))
    except KeyError:  # an older format: what it lacks is None
        rows = [tuple(map(entry.get, _FIELDS)) for entry in entries]
    return dict(zip(_FIELDS, zip(*rows, strict=True), strict=True))


def _pairs(process_groups: Sequence[Any], pg_ids: Sequence[Any]) -> Iterable[tuple[Any, ...]]:
    """Name and description of each entry's group; the pg_id stands in where a format lacks them."""
    lacking = None in process_groups
    given = [it for it in process_groups if it is not None] if lacking else process_groups
    if set(map(len, given)) - {2}:
        raise ValueError("a group that is not its name and description")
    scalars(chain.from_iterable(given))
    if lacking:
        scalars(pg_ids)
        return [
            (pg_id, "") if it is None else tuple(it)
            for it, pg_id in zip(process_groups, pg_ids, strict=True)
        ]
    return map(tuple, process_groups)


def _integers(values: Sequence[Any]) -> Array:
    """int64 (n,); None is 0. One by one: an array of what holds itself twice would never end."""
    try:
        return np.fromiter(values, dtype=np.int64, count=len(values))
    except TypeError:
        known = [value or 0 for value in values]
        return np.fromiter(known, dtype=np.int64, count=len(known))


def _milliseconds(entries: Sequence[Mapping[str, Any]]) -> Array:
    """`duration_ms` (n,), which is there only with NCCL's timing on."""
    milliseconds = np.zeros(len(entries))
    for row, entry in enumerate(entries):
        if "duration_ms" in entry:
            milliseconds[row] = float(entry["duration_ms"] or 0)
    return milliseconds


def _common(dtypes: Sequence[str]) -> str | None:
    """The element type of all tensors of a call; None if they differ or there are none."""
    return dtypes[0] if dtypes and all(other == dtypes[0] for other in dtypes) else None


def elements_of(sizes: Iterable[Any], budget: int) -> Array:
    """Elements of all tensors of each call (n,), -1 where there are no tensors."""
    calls = [tensors or () for tensors in sizes]
    tensors_of = np.fromiter(map(len, calls), dtype=np.int64, count=len(calls))
    if tensors_of.sum() > budget:
        raise ValueError("more tensors than its size explains")
    tensors = list(chain.from_iterable(calls))
    dimensions_of = np.fromiter(map(len, tensors), dtype=np.int64, count=len(tensors))
    if dimensions_of.max(initial=0) > _MAX_DIMENSIONS:
        raise ValueError(f"a tensor of more than {_MAX_DIMENSIONS} dimensions")
    if dimensions_of.sum() > budget:
        raise ValueError("more dimensions of tensors than its size explains")
    dimensions = np.fromiter(chain.from_iterable(tensors), dtype=np.int64)
    elements = _each(np.multiply, dimensions, dimensions_of, of_none=1)
    return _each(np.add, elements, tensors_of, of_none=-1)


def _each(operation: np.ufunc, values: Array, lengths: Array, of_none: int) -> Array:
    """The sum or product of each run of values, runs being so long; of an empty one `of_none`."""
    found = np.full(len(lengths), of_none, dtype=np.int64)
    filled = lengths > 0
    if filled.any():
        starts = (np.cumsum(lengths) - lengths)[filled]
        if np.abs(operation.reduceat(values.astype(np.float64), starts)).max() >= _TOO_MANY:
            raise OverflowError("more elements than a tensor can have")
        found[filled] = operation.reduceat(values, starts)
    return found
