"""What a dump says of its operations, as columns: the raw numbers, whoever read them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

import numpy as np

from oncall.importers.codes import Codes

Array: TypeAlias = np.ndarray[Any, Any]

COMPLETED, STARTED = 1, 2
MOST_FRAMES = 256


@dataclass(frozen=True)
class Rows:
    """Columns (n,), int64 but for `duration_ms`; a number that the dump lacks is 0.

    `group` codes index `pairs` (name and description), `call` codes `calls` (profiling names),
    `dtype` codes `dtypes`: the element type of all tensors, -1 where there is not one. Elements are
    -1 without a tensor. `state` is COMPLETED, STARTED or 0; `retired` 0 or 1, `is_p2p` too, or -1
    where the format lacks it. `stack` is what `frames` takes, -1 for none; it gives a stack's first
    frames, each as (name, file, line).
    """

    pairs: Sequence[tuple[str, str]]
    calls: Sequence[str]
    dtypes: Sequence[str]
    group: Array
    pg_id: Array
    call: Array
    dtype: Array
    collective_seq: Array
    p2p_seq: Array
    op_id: Array
    record_id: Array
    created_ns: Array
    started_ns: Array
    ended_ns: Array
    timeout_ms: Array
    duration_ms: Array
    input_elements: Array
    output_elements: Array
    state: Array
    retired: Array
    is_p2p: Array
    stack: Array
    frames: Callable[[int], Sequence[tuple[str, str, str]]]

    def __len__(self) -> int:
        return len(self.group)


@dataclass(frozen=True)
class Dump:
    """A dump: `head` is all but its entries, `size` in bytes, `pickled` or else JSON."""

    head: Mapping[str, Any]
    rows: Rows
    size: int
    pickled: bool


def joined(dumps: Sequence[Rows]) -> tuple[Rows, Array]:
    """The rows of several dumps as one, and which dump (n,) each is of.

    Each dump's groups are its own, the dumps' one after another. Looking at a few hundred rows
    costs as much as looking at ten thousand.
    """
    calls, dtypes = Codes(), Codes()
    call = [calls.of(rows.calls)[rows.call] for rows in dumps]
    dtype = [np.append(dtypes.of(rows.dtypes), -1)[rows.dtype] for rows in dumps]
    before = _before([len(rows.pairs) for rows in dumps])
    group = [rows.group + first for rows, first in zip(dumps, before, strict=True)]
    stacks = [int(rows.stack.max()) + 1 for rows in dumps]
    first_stack = _before(stacks)
    stack = [
        np.where(rows.stack < 0, -1, rows.stack + first)
        for rows, first in zip(dumps, first_stack, strict=True)
    ]

    def frames(code: int) -> Sequence[tuple[str, str, str]]:
        of = int(np.searchsorted(first_stack, code, side="right")) - 1
        return dumps[of].frames(code - int(first_stack[of]))

    own = {"call": call, "dtype": dtype, "group": group, "stack": stack}
    columns = {
        column.name: np.concatenate(
            own.get(column.name) or [getattr(rows, column.name) for rows in dumps]
        )
        for column in fields(Rows)
        if isinstance(getattr(dumps[0], column.name), np.ndarray)
    }
    pairs = [pair for rows in dumps for pair in rows.pairs]
    dump = np.repeat(np.arange(len(dumps)), [len(rows) for rows in dumps])
    return Rows(pairs, list(calls), list(dtypes), **columns, frames=frames), dump


def _before(counts: Sequence[int]) -> Array:
    """How many come before each."""
    before: Array = np.cumsum(counts) - counts
    return before
