"""The network in tiers, by how far from hosts, with the way that pauses took from root to victim.

Of a large network those devices are drawn that the way or the flow passes, and some beside them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Role = Literal["victim", "root", "way", "flow", "other"]


@dataclass(frozen=True)
class Device:
    """A host (tier 0) or a switch."""

    name: str
    tier: int
    role: Role = "other"


@dataclass(frozen=True)
class Cable:
    """A link between two devices. `paused`: it lies on the way of the pauses, which came from `b`
    to `a`; `flow`: the critical flow went from `a` to `b` on it."""

    a: str
    b: str
    paused: bool = False
    flow: bool = False


@dataclass(frozen=True)
class Hop:
    """A port of the way from the victim to the root, with what happened to it."""

    label: str
    device: str
    towards: str
    paused_ns: float | None = None
    depth: float | None = None
    is_root: bool = False


@dataclass(frozen=True)
class Root:
    """Where the step's waiting begins. `share` is its part of what the step lost."""

    kind: str
    label: str
    host: str | None
    seen: bool
    share: float
    hops: tuple[Hop, ...]


@dataclass(frozen=True)
class Topology:
    """`tiers` from hosts up, devices in drawing order; `left_out` of each tier are not drawn.
    `notes`: what else is seen at the root, a sentence each."""

    victim: str
    roots: tuple[Root, ...]
    tiers: tuple[tuple[Device, ...], ...]
    cables: tuple[Cable, ...]
    left_out: tuple[int, ...]
    notes: tuple[str, ...] = ()

    @property
    def root(self) -> Root | None:
        """The one that most of the step's loss leads to."""
        return self.roots[0] if self.roots else None

    @property
    def drawn(self) -> int:
        return sum(map(len, self.tiers))
