"""What recorders of all kinds share: when a job began, what nodes are called, their clocks, and
the rows that say which ranks there are and what of their recording was lost."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from oncall.evidence.incident import Incident, Words
from oncall_lab.arrays import Bools, Floats, Ints

EPOCH_NS = 1_767_225_600 * 10**9  # the job's begin: 2026-01-01 00:00 UTC
STARTUP_NS = 90e9  # from the process to its first operation
FIRST_PID = 4000


def node_name(index: int) -> str:
    return f"gpu{index + 1:03d}"


def comm_hash(text: str) -> int:
    """The hash by which NCCL would know a communicator."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


class Recorded(Protocol):
    """What the rows of a scenario's nodes are made from."""

    @property
    def job(self) -> str: ...
    @property
    def nodes(self) -> int: ...
    @property
    def missing_nodes(self) -> tuple[int, ...]: ...
    @property
    def gpus_per_node(self) -> int: ...
    @property
    def clock_offset_ns(self) -> int: ...
    @property
    def clock_error_ns(self) -> int: ...
    def rng(self, purpose: str) -> np.random.Generator: ...


class NodeClocks:
    """The clock of each rank's node: a constant offset, measured with an error."""

    def __init__(self, scenario: Recorded, node_of: Ints) -> None:
        """`node_of` (ranks,): the index of each rank's node."""
        rng, limit = scenario.rng("clocks"), scenario.clock_offset_ns
        self.node_of = node_of
        self.node_names = [node_name(node) for node in range(scenario.nodes)]
        self.offset_ns: Floats = np.rint(rng.uniform(-limit, limit, scenario.nodes))
        self.errors_ns: Floats = rng.uniform(-1, 1, scenario.nodes) * scenario.clock_error_ns
        self._error_ns = scenario.clock_error_ns

    def read(self, nodes: Ints, true_ns: Floats) -> Ints:
        """Unix time that each of these nodes shows at a true moment, ns since the job began."""
        return EPOCH_NS + np.rint(true_ns + self.offset_ns[nodes]).astype(np.int64)

    def nodes(self, ranks: Ints) -> Words:
        """The name of each rank's node."""
        return Words(self.node_of[ranks].astype(np.int32), self.node_names)

    def shown(self, rank: Ints, true_ns: Floats | float) -> np.ma.MaskedArray[Any, Any]:
        """Unix time on each rank's node at a true moment; masked for never."""
        known = np.isfinite(true_ns) & np.ones(rank.shape, dtype=np.bool_)
        shown = self.read(self.node_of[rank], np.where(known, true_ns, 0.0))
        return np.ma.MaskedArray(shown, mask=~known)

    def at_end(self, nodes: Ints, until_ns: float) -> dict[str, Any]:
        """The columns node and at_ns of a row that each of these nodes writes at the end."""
        ends = self.read(nodes, np.full(len(nodes), until_ns))
        return {"node": [self.node_names[node] for node in nodes], "at_ns": ends}

    def measured(self, nodes: Ints, until_ns: float) -> dict[str, Any]:
        """Rows of clocks: what the console measured of these nodes at the end."""
        offset = np.rint(self.offset_ns + self.errors_ns).astype(np.int64)[nodes]
        known = {"offset_ns": offset, "error_ns": self._error_ns}
        return {**self.at_end(nodes, until_ns), **known}


class Recorder:
    """Writes one job's rows: true times come in, what each node's clock showed goes out."""

    def __init__(self, scenario: Recorded, clocks: NodeClocks, until_ns: float) -> None:
        self.clocks, self.until_ns = clocks, until_ns
        self.incident = Incident.empty()
        self.answered: Ints = np.setdiff1d(np.arange(scenario.nodes), scenario.missing_nodes)
        self.silent: Bools = np.isin(clocks.node_of, scenario.missing_nodes)
        self.job = scenario.job
        self._nics = [f"mlx5_{rail}" for rail in range(scenario.gpus_per_node)]

    def append(self, table: str, rows: Mapping[str, Any]) -> None:
        """Rows of the job."""
        self.incident.append(table, {"job": self.job, **rows})

    def nics(self, rails: Ints) -> Words:
        """The names of NICs on their nodes."""
        return Words(rails.astype(np.int32), self._nics)

    def ranks(self, ranks: Ints, local: Ints, nic: Ints, **known: Any) -> None:
        """Where ranks run; `local`: the GPU of each, `nic`: the NIC that it uses."""
        own = {"rank": ranks, "node": self.clocks.nodes(ranks), "local_rank": local, "gpu": local}
        process = {"pid": FIRST_PID + ranks, "started_ns": self.clocks.shown(ranks, -STARTUP_NS)}
        self.append("ranks", {**own, **process, "nic": self.nics(nic), **known})

    def collectors(self, kept: Ints, lost: Ints) -> None:
        """Each node's collector says how many rows it wrote and how many its rings dropped;
        `kept` and `lost` are the rank of every row."""
        nodes = len(self.clocks.node_names)
        rows, dropped = (
            np.bincount(self.clocks.node_of[rank], minlength=nodes)[self.answered]
            for rank in (kept, lost)
        )
        own = {"source": "ccl", "rows": rows, "dropped": dropped}
        self.incident.append(
            "collectors", {**self.clocks.at_end(self.answered, self.until_ns), **own}
        )
