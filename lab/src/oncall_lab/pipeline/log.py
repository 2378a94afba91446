"""Calls and tasks as they happen: blocks of arrays, one row a rank and call in the end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from oncall_lab.arrays import Floats, Ints

OPS = (
    "AllReduce", "AllGather", "ReduceScatter", "Broadcast", "AllToAll", "Barrier", "Send", "Recv",
)  # fmt: skip
TASKS = (
    "forward", "backward", "forward_recv", "forward_send", "backward_recv", "backward_send",
    "gradients", "parameters", "embedding", "optimizer", "garbage", "evaluation", "checkpoint",
)  # fmt: skip


@dataclass
class Log:
    """Blocks of rows. Values of a block are arrays that broadcast against its `rank`."""

    kept: bool = True  # False: nobody will ask for it
    blocks: list[dict[str, Any]] = field(default_factory=list)

    def add(self, rank: Ints, **values: Any) -> None:
        """Rows of these ranks."""
        if self.kept:
            self.blocks.append({"rank": rank, **values})

    def columns(self, types: dict[str, type[np.generic]]) -> dict[str, NDArray[Any]]:
        """Everything, one array a column."""
        shapes = [block["rank"].shape for block in self.blocks]
        sizes = [block["rank"].size for block in self.blocks]
        bounds = np.cumsum([0, *sizes])
        result: dict[str, NDArray[Any]] = {}
        for name, kind in types.items():
            whole = np.empty(bounds[-1], dtype=kind)
            for index, block in enumerate(self.blocks):
                part = whole[bounds[index] : bounds[index + 1]].reshape(shapes[index])
                part[...] = block[name]
            result[name] = whole
        return result


class Calls:
    """Calls of NCCL: collectives and transfers, numbered as NCCL's users see them.

    Times are ns since the job began, infinity is never.
    """

    TYPES: ClassVar[dict[str, type[np.generic]]] = {
        "rank": np.int64, "comm": np.uint64, "seq": np.int64, "op": np.int32, "bytes": np.int64,
        "peer": np.int64, "pair_seq": np.int64, "group": np.int64, "iteration": np.int64,
        "called_ns": np.float64, "entered_ns": np.float64, "ended_ns": np.float64,
    }  # fmt: skip

    def __init__(self, *, kept: bool) -> None:
        self._log = Log(kept)
        self.iteration = 0

    def collectives(
        self, rank: Ints, comm: NDArray[np.uint64], seq: Any, ops: Any, size_bytes: Any,
        called_ns: Floats, entered_ns: Floats, ended_ns: Floats,
    ) -> None:  # fmt: skip
        self._log.add(
            rank, comm=comm, seq=seq, op=ops, bytes=size_bytes, peer=-1, pair_seq=0, group=-1,
            iteration=self.iteration, called_ns=called_ns, entered_ns=entered_ns, ended_ns=ended_ns,
        )  # fmt: skip

    def transfer(
        self, rank: Ints, comm: NDArray[np.uint64], seq: int, op: str, size_bytes: int,
        peer: Ints, pair_seq: int, group: int, entered_ns: Floats, ended_ns: Floats,
    ) -> None:  # fmt: skip
        self._log.add(
            rank, comm=comm, seq=seq, op=OPS.index(op), bytes=size_bytes, peer=peer,
            pair_seq=pair_seq, group=group, iteration=self.iteration, called_ns=entered_ns,
            entered_ns=entered_ns, ended_ns=ended_ns,
        )  # fmt: skip

    @property
    def kept(self) -> bool:
        return self._log.kept

    def columns(self) -> dict[str, NDArray[Any]]:
        return self._log.columns(self.TYPES)


class Tasks:
    """What ranks did, by task; what a trainer that records its tasks would say."""

    TYPES: ClassVar[dict[str, type[np.generic]]] = {
        "rank": np.int64, "iteration": np.int64, "task": np.int32, "stage": np.int64,
        "chunk": np.int64, "micro_batch": np.int64, "peer": np.int64, "comm": np.uint64,
        "started_ns": np.float64, "ended_ns": np.float64, "first_call_ns": np.float64,
        "last_call_ns": np.float64, "calls": np.int64, "own_ns": np.float64,
        "late_ns": np.float64, "last_calls": np.int64,
    }  # fmt: skip
    _DEFAULTS: ClassVar[dict[str, Any]] = {
        "chunk": 0, "micro_batch": -1, "peer": -1, "comm": 0, "first_call_ns": np.inf,
        "last_call_ns": np.inf, "calls": 0, "own_ns": np.inf, "late_ns": np.inf, "last_calls": 0,
    }  # fmt: skip

    def __init__(self, *, kept: bool) -> None:
        self._log = Log(kept)
        self.iteration = 0

    def add(
        self, task: str, stage: int, rank: Ints, started_ns: Floats, ended_ns: Floats, **more: Any
    ) -> None:
        """One task on ranks of one stage; -1 and infinity stand for what is not known."""
        self._log.add(
            rank, iteration=self.iteration, task=TASKS.index(task), stage=stage,
            started_ns=started_ns, ended_ns=ended_ns, **{**self._DEFAULTS, **more},
        )  # fmt: skip

    @property
    def kept(self) -> bool:
        return self._log.kept

    def columns(self) -> dict[str, NDArray[Any]]:
        return self._log.columns(self.TYPES)
