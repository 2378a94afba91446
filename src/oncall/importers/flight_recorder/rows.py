"""What a dump says of its operations, as columns: the raw numbers, whoever read them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]

COMPLETED, STARTED = 1, 2
MOST_FRAMES = 256


@dataclass(frozen=True)
class Rows:
    """Columns (n,), int64 but for `duration_ms`; a number that the dump lacks is 0.

    `group` codes index `pairs` (name and description), `call` codes `calls` (profiling names),
    `dtype` codes `dtypes`: the element type of all tensors, -1 where there is not one. Elements are
    -1 without a tensor. `state` is COMPLETED, STARTED or 0; `retired` 0 or 1, `is_p2p` too, or -1
    where the format lacks it. `frames` gives the first frames of a row, each as (name, file, line);
    it may be called until the thread reads the next dump.
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
