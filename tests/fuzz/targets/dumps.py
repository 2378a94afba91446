"""Dumps of the Flight Recorder in the opcodes that PyTorch writes: what C reads of them."""

from __future__ import annotations

import json
import random
from dataclasses import fields
from typing import Any

import numpy as np
from tests.pytorch_pickle import pytorch_pickle

from oncall.core.errors import Unreadable
from oncall.importers.flight_recorder.file import parsed
from oncall.importers.flight_recorder.opcodes import read_opcodes
from oncall.importers.flight_recorder.rows import Rows

from ..mutate import mutated, mutated_json
from ..registry import target

_START_NS = 1_760_000_000_000_000_000


def _entry(number: int, **more: Any) -> dict[str, Any]:
    return {
        "frames": [{"name": "step", "filename": "/opt/träin.py", "line": 512 + number % 2}] * 2,
        "record_id": number,
        "pg_id": number % 2,
        "process_group": ["0", "default_pg"],
        "thread_name": "python",
        "collective_seq_id": 300 + number,
        "p2p_seq_id": 0,
        "op_id": number,
        "profiling_name": "nccl:all_reduce",
        "time_created_ns": _START_NS + number,
        "duration_ms": 0.25,
        "input_sizes": [[2, 2], [], [70_000]],
        "input_dtypes": ["Float", "Float"],
        "output_sizes": [[2**31, 4]],
        "state": "completed",
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": _START_NS + 500,
        "retired": True,
        "timeout_ms": 600_000,
        "is_p2p": False,
    } | more


_DUMP = {
    "version": "2.10",
    "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
    "pg_status": {"0": {"last_enqueued_collective": 3, "last_completed_collective": -1}},
    "entries": [
        _entry(0),
        _entry(1, state="started", retired=False, duration_ms=2),
        _entry(2, profiling_name="nccl:send 0->1", is_p2p=True, input_dtypes=["Float", "Half"]),
        _entry(3, state="scheduled", process_group=["1", "tp"], frames=None, input_sizes=[]),
    ],
}


def _made(seed: int) -> bytes:
    """Values changed, or bytes, or both."""
    dice = random.Random(seed)
    value = _DUMP
    if dice.random() < 0.7:
        try:
            value = json.loads(mutated_json([_DUMP], dice.randrange(2**32)))
        except (ValueError, RecursionError):  # damaged as text, too
            value = _DUMP
    data = pytorch_pickle(_with_pairs(value))
    return mutated([data], dice.randrange(2**32)) if dice.random() < 0.6 else data


def _with_pairs(value: Any) -> Any:
    """JSON has no tuples; the recorder's groups are."""
    entries = value.get("entries") if isinstance(value, dict) else None
    for entry in entries if isinstance(entries, list) else ():
        group = entry.get("process_group") if isinstance(entry, dict) else None
        if isinstance(group, list) and len(group) < 4:
            entry["process_group"] = tuple(group)
    return value


def _frames(rows: Rows, row: int) -> Any:
    stack = int(rows.stack[row])
    return list(rows.frames(stack)) if stack >= 0 else []


@target(make=_made)
def recorder_opcodes(data: bytes) -> None:
    """C reads what Python's unpickler reads, or nothing."""
    try:
        read = read_opcodes(data)
    except Unreadable:
        return
    if read is None:
        return
    head, rows = read
    same_head, same = parsed(data)
    assert repr(head) == repr(same_head)
    assert [_frames(rows, row) for row in range(len(rows))] == [
        _frames(same, row) for row in range(len(same))
    ]
    for column in fields(rows):
        one, other = getattr(rows, column.name), getattr(same, column.name)
        if column.name == "stack":
            continue
        if isinstance(one, np.ndarray):
            assert one.dtype == other.dtype, column.name
            assert np.array_equal(one, other, equal_nan=one.dtype == np.float64), column.name
        elif column.name not in ("frames", "dump"):
            assert list(one) == list(other), column.name
