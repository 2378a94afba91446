"""What a plan holds: flows on their ways, and ports made to pause for no reason."""

from __future__ import annotations

from dataclasses import dataclass

from oncall_lab.network.routing import Path


@dataclass(frozen=True)
class Flow:
    """A flow of others. `share` of line rate is the most it sends; one that is `lost` comes to the
    end of its way by its time to live, not at its receiver."""

    src: int
    dst: int
    path: Path
    bytes: int
    at_ns: float
    src_port: int
    controlled: bool = True
    share: float = 1.0
    lost: bool = False

    @property
    def name(self) -> str:
        return f"{self.src}->{self.dst}"


@dataclass(frozen=True)
class Storm:
    """`port` is made to pause by the device it leads to."""

    port: int
    at_ns: float
    until_ns: float


@dataclass(frozen=True)
class Injected:
    """What a fault brings into the network, and which port or ports are to blame, if any."""

    kind: str
    at_ns: float
    flows: tuple[Flow, ...] = ()
    storms: tuple[Storm, ...] = ()
    ports: tuple[int, ...] = ()
