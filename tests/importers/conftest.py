"""Flight Recorder dumps as small as a test needs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.pytorch_pickle import pytorch_pickle

START_NS = 1_760_000_000_000_000_000


def entry(number: int, seq: int, group: tuple[str, str] = ("0", "default_pg"), **more: Any) -> Any:
    """A completed all_reduce of 4 floats, as PyTorch 2.10 writes it; `more` overrides fields."""
    return {
        "record_id": number,
        "pg_id": 0,
        "process_group": group,
        "thread_name": "python",
        "thread_id": "1",
        "collective_seq_id": seq,
        "p2p_seq_id": 0,
        "op_id": seq,
        "profiling_name": "nccl:all_reduce",
        "time_created_ns": START_NS + number * 1_000_000,
        "input_sizes": [[2, 2]],
        "input_dtypes": ["Float"],
        "output_sizes": [[2, 2]],
        "output_dtypes": ["Float"],
        "state": "completed",
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": START_NS + number * 1_000_000 + 500_000,
        "retired": True,
        "timeout_ms": 600_000,
        "is_p2p": False,
    } | more


def stuck(number: int, seq: int, group: tuple[str, str] = ("0", "default_pg"), **more: Any) -> Any:
    """The same, in flight."""
    open_ = {"state": "scheduled", "retired": False, "time_discovered_completed_ns": None}
    return entry(number, seq, group, **(open_ | more))


def dump(
    entries: Sequence[Mapping[str, Any]],
    groups: Mapping[str, tuple[str, Sequence[int]]] | None = None,
    status: Mapping[int, tuple[int, int]] | None = None,
    version: str = "2.10",
) -> dict[str, Any]:
    """A dump; `groups` by name: (description, ranks), `status` by pg_id: (launched, completed)."""
    return {
        "version": version,
        "pg_config": {
            name: {"name": name, "desc": desc, "ranks": str(list(ranks))}
            for name, (desc, ranks) in (groups or {}).items()
        },
        "comm_lib_version": "2.27.3",
        "pg_status": {
            str(pg_id): {
                "last_enqueued_collective": launched,
                "last_started_collective": -1,
                "last_completed_collective": completed,
            }
            for pg_id, (launched, completed) in (status or {}).items()
        },
        "entries": list(entries),
    }


def write(folder: Path, rank: int, content: Any, suffix: str = "") -> Path:
    """Write a dump as `fr_trace_rank_N`, JSON if the suffix says so, else a pickle as PyTorch's."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"fr_trace_rank_{rank}{suffix}"
    if suffix == ".json":
        path.write_text(json.dumps(content))
    else:
        path.write_bytes(pytorch_pickle(content))
    return path


@pytest.fixture
def fr() -> SimpleNamespace:
    """The builders of this file: fr.entry, fr.stuck, fr.dump, fr.write."""
    return SimpleNamespace(entry=entry, stuck=stuck, dump=dump, write=write)
