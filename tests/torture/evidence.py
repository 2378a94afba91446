"""What a store holds, read without its collector: sealed shards, and a copy of the live store.

`committed` is defined here: a row is committed once DuckDB finds it in the sealed shards or in the
live store and its write-ahead log as the dead collector left them.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from oncall.evidence.statements import quoted
from oncall.node.store.catalog import LIVE_NAME, parse_shard
from oncall.node.store.database import DEFAULT_LIMITS
from oncall.node.store.writer import open_instance

Array = np.ndarray[Any, Any]
# A row says that an operation is over: by its end, or because the boards count it as over.
_OVER = "SELECT comm, seq, ended_ns IS NOT NULL AS ended, pair_seq FROM ops WHERE done"


@dataclass(frozen=True)
class Rows:
    """Operations (n,) that a store says are over."""

    comm: Array
    seq: Array
    ended: Array  # whether a record states the end
    pair_seq: Array  # 0: none

    def __len__(self) -> int:
        return len(self.comm)

    @property
    def keys(self) -> Array:
        """One number an operation: what it is, whoever recorded it."""
        return key(self.comm, self.seq)


def key(comm: Array, seq: Array) -> Array:
    """Operations as single numbers; sequence numbers stay far below 2**32 here."""
    packed: Array = comm.astype(np.int64) * 2**32 + seq.astype(np.int64)
    return packed


def joined(parts: Iterable[Rows]) -> Rows:
    """Rows of several stores."""
    parts = list(parts)
    names = ("comm", "seq", "ended", "pair_seq")
    empty = np.zeros(0, np.int64)
    return Rows(*(np.concatenate([empty, *(getattr(p, n) for p in parts)]) for n in names))


def duplicates(rows: Rows) -> int:
    """Rows beyond the first of the same operation."""
    return len(rows) - len(np.unique(rows.keys))


@dataclass(frozen=True)
class Store:
    """One DuckDB file of a node: its rows, its bookmarks, and the losses it reports."""

    rows: Rows
    started_ns: int  # Unix time when its collector began it
    drained: int | None  # records of the ring that its collector had read at its last commit
    dropped: int  # records, as the newest account of the rings says
    forgotten: int  # rows, as the collector's own account says


class Archive:
    """Every shard that a node ever sealed, kept by hard links from before retention takes it."""

    def __init__(self, data: Path, kept: Path) -> None:
        self._data = data
        self._kept = kept
        kept.mkdir()
        self.stores: dict[str, Store] = {}
        self._sizes: dict[str, tuple[int, int]] = {}
        self.changed: list[str] = []  # sealed shards that did not stay as they were
        self.retired = 0

    def look(self) -> list[Store]:
        """Link and read what is new; returns it, oldest first."""
        present = set()
        fresh = []
        for path in self._data.iterdir():
            shard = parse_shard(path)
            if shard is None:
                continue
            present.add(path.name)
            if path.name not in self.stores:
                keep(path, self._kept / path.name)
                fresh.append((shard.start_ns, path.name))
        found = []
        for _, name in sorted(fresh):
            self.stores[name] = read(self._kept / name)
            self._sizes[name] = _size(self._kept / name)
            found.append(self.stores[name])
        self.retired = len(self.stores) - len(present)
        return found

    def check_unchanged(self) -> None:
        """Note every sealed shard that was written to since it was first seen."""
        self.changed = [n for n, size in self._sizes.items() if _size(self._kept / n) != size]

    @property
    def forgotten(self) -> int:
        """Rows that one collector could not keep until it could write."""
        return max((store.forgotten for store in self.stores.values()), default=0)

    @property
    def rows(self) -> Rows:
        return joined(store.rows for store in self.stores.values())


def keep(path: Path, kept: Path) -> None:
    """The same file under another name; a copy where that is on another disk."""
    try:
        os.link(path, kept)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        shutil.copy2(path, kept)


def live(data: Path, scratch: Path) -> Store | None:
    """What the live store of a dead collector holds as committed; None where there is none yet.

    A copy is read: the original is for the next collector to recover.
    """
    if not (data / LIVE_NAME).exists():
        return None
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    for path in data.glob(f"{LIVE_NAME}*"):
        shutil.copyfile(path, scratch / path.name)
    return read(scratch / LIVE_NAME)


def read(path: Path) -> Store:
    """A DuckDB file, with the log beside it if there is one."""
    con = open_instance(DEFAULT_LIMITS)
    try:
        con.execute(f"ATTACH '{quoted(path)}' AS store; SET search_path = 'store,memory'")
        if not con.execute("FROM duckdb_tables() WHERE table_name = 'meta'").fetchall():
            return Store(joined([]), 0, None, 0, 0)
        columns = con.execute(_OVER).fetchnumpy()
        marks = con.execute(
            "SELECT value FROM bookmarks WHERE name LIKE '%/drained' AND value IS NOT NULL"
        ).fetchall()
        ((started_ns,),) = con.execute("SELECT started_ns FROM meta").fetchall()
        ((dropped, forgotten),) = con.execute(
            "SELECT coalesce(max(dropped) FILTER (source = 'rings'), 0), "
            "coalesce(max(dropped) FILTER (source = 'collector'), 0) FROM collectors"
        ).fetchall()
    finally:
        con.close()
    values = {name: np.ma.filled(column, 0) for name, column in columns.items()}
    drained = max((int(value) for (value,) in marks), default=None)
    rows = Rows(**{name: values[name] for name in Rows.__annotations__})
    return Store(rows, started_ns, drained, dropped, forgotten)


def _size(path: Path) -> tuple[int, int]:
    state = path.stat()
    return state.st_size, state.st_mtime_ns
