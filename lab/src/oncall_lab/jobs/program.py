"""What the host of one rank enqueues, step by step: the language of all programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from oncall_lab.jobs.layout import Group
from oncall_lab.jobs.scenario import JobScenario

ELEMENT_BYTES = 2  # BFloat16
WARM_UP_FACTOR = 2.5
LAUNCH_SHARE = 0.3  # of the time of kernels: what their launches take on the host


@dataclass(frozen=True)
class Compute:
    """Kernels of this length on the compute stream, and how long the host launches them."""

    length_ns: float
    launch_ns: float


@dataclass(frozen=True)
class Host:
    """The host does something else, such as load data, while the device works on."""

    length_ns: float


@dataclass(frozen=True)
class Call:
    """A collective on the stream of its group. `after`: earlier calls (tags) it needs; None: what
    the compute stream has so far. `elements` is the larger of input and output."""

    tag: int
    group: Group
    op: str
    elements: int
    after: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Passing:
    """Sends and receives; `batched` as one kernel, each (send or recv, peer, elements)."""

    tag: int
    group: Group
    parts: tuple[tuple[str, int, int], ...]
    batched: bool


@dataclass(frozen=True)
class Wait:
    """The compute stream waits for a call."""

    tag: int


@dataclass(frozen=True)
class Sync:
    """The host waits for the compute stream, as `.item()` does."""


Item: TypeAlias = Compute | Host | Call | Passing | Wait | Sync


class Builder:
    """Writes the steps of one rank. Random numbers depend on the rank only."""

    def __init__(
        self,
        scenario: JobScenario,
        groups: dict[str, Group],
        rank: int,
        samples: dict[tuple[int, ...], float],
    ) -> None:
        """`samples`: lengths drawn so far, which the ranks of a replica share."""
        self.scenario, self.groups, self.rank, self._samples = scenario, groups, rank, samples
        self.steps: list[list[Item]] = []
        self._rng = scenario.rng(f"kernels of {rank}")
        self._tags = 0

    def begin(self) -> None:
        """A new step, whose first thing is to load data."""
        self.steps.append([])
        self.host(self.scenario.load_ns * (0.5 + self._rng.random()))

    @property
    def step(self) -> int:
        return len(self.steps) - 1

    def shared(self, purpose: str, *key: int) -> np.random.Generator:
        """Random numbers that ranks with the same key share."""
        return self.scenario.rng(f"{purpose} {self.step} {key}")

    def sample(self, replica: int, part: int = 0) -> float:
        """How long the samples of a replica are in this step, against the mean."""
        sigma, key = self.scenario.uneven, (self.step, replica, part)
        if key not in self._samples:
            drawn = self.shared("samples", replica, part).lognormal(-(sigma**2) / 2, sigma)
            self._samples[key] = float(drawn)
        return self._samples[key]

    def compute(self, length_ns: float) -> None:
        s = self.scenario
        warm = s.earlier_steps == 0 and self.step < s.warm_up_steps
        noise = max(0.2, 1 + s.jitter * self._rng.standard_normal())
        takes_ns = length_ns * noise * (WARM_UP_FACTOR if warm else 1)
        self.steps[-1].append(Compute(takes_ns, LAUNCH_SHARE * takes_ns))

    def host(self, length_ns: float) -> None:
        self.steps[-1].append(Host(length_ns))

    def call(
        self, role: str, op: str, nbytes: float, *, wait: bool = True,
        after: tuple[int, ...] | None = None,
    ) -> int:  # fmt: skip
        """A collective of `nbytes` in this rank's group of a role; its tag. Without such a group
        (it would have one member) nothing happens."""
        self._tags += 1
        group = self.groups.get(role)
        if group is not None:
            # Whole shards, so that inputs and outputs agree.
            size = len(group.members)
            shard = -(-int(nbytes) // ELEMENT_BYTES // size)
            elements = shard * size if nbytes >= size * ELEMENT_BYTES else 1
            self.steps[-1].append(Call(self._tags, group, op, elements, after))
            if wait:
                self.wait(self._tags)
        return self._tags

    def passing(
        self, role: str, parts: Sequence[tuple[str, int]], nbytes: float, *, batched: bool = False
    ) -> int:
        """Sends and receives with members of the group, given as global ranks; their tag."""
        self._tags += 1
        elements = int(nbytes) // ELEMENT_BYTES
        listed = tuple((way, peer, elements) for way, peer in parts)
        self.steps[-1].append(Passing(self._tags, self.groups[role], listed, batched))
        return self._tags

    def wait(self, tag: int) -> None:
        self.steps[-1].append(Wait(tag))

    def sync(self) -> None:
        self.steps[-1].append(Sync())
