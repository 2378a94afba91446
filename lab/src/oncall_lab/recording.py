"""What recorders of all kinds share: when a job began, what nodes are called, and their clocks."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from oncall.evidence.incident import Words

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

EPOCH_NS = 1_767_225_600 * 10**9  # the job's begin: 2026-01-01 00:00 UTC
STARTUP_NS = 90e9  # from the process to its first operation


def node_name(index: int) -> str:
    return f"gpu{index + 1:03d}"


class Recorded(Protocol):
    """What the clocks of a scenario's nodes are drawn from."""

    @property
    def nodes(self) -> int: ...
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
        self._errors_ns = rng.uniform(-1, 1, scenario.nodes) * scenario.clock_error_ns
        self._error_ns = scenario.clock_error_ns

    def nodes(self, ranks: Ints) -> Words:
        """The name of each rank's node."""
        return Words(self.node_of[ranks].astype(np.int32), self.node_names)

    def shown(self, rank: Ints, true_ns: Floats | float) -> NDArray[Any]:
        """Unix time on each rank's node at a true moment; masked for never."""
        known = np.isfinite(true_ns) & np.ones(rank.shape, dtype=np.bool_)
        moment = np.where(known, true_ns, 0.0) + self.offset_ns[self.node_of[rank]]
        return np.ma.MaskedArray(EPOCH_NS + np.rint(moment).astype(np.int64), mask=~known)

    def at_end(self, nodes: Ints, until_ns: float) -> dict[str, Any]:
        """The columns node and at_ns of a row that each of these nodes writes at the end."""
        ends = EPOCH_NS + np.rint(until_ns + self.offset_ns[nodes]).astype(np.int64)
        return {"node": [self.node_names[node] for node in nodes], "at_ns": ends}

    def measured(self, nodes: Ints, until_ns: float) -> dict[str, Any]:
        """Rows of clocks: what the console measured of these nodes at the end."""
        offset = np.rint(self.offset_ns + self._errors_ns).astype(np.int64)[nodes]
        known = {"offset_ns": offset, "error_ns": self._error_ns}
        return {**self.at_end(nodes, until_ns), **known}
