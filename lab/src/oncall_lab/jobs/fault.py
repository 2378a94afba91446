"""What breaks in a job: a rank that hangs, a call that does not match, something slow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from oncall_lab.scenario import Fault, quantity

# kind -> class
CLASSES: Mapping[str, str] = {
    "never_calls": "H1",
    "mismatch": "H2",  # how: operation, size, or an extra call that no other member makes
    "never_ends": "H3",
    "slow_compute": "S1",
    "slow_host": "S1",  # every rank of the host of `ranks`
    "stalls": "S1",  # garbage collection or the data loader, every few steps
    "slow_link": "S2",  # the NIC of the rank: everything it does between hosts
}
MISMATCHES = ("operation", "size", "extra")


@dataclass(frozen=True)
class JobFault(Fault):
    """One cause, on `ranks` from `step` on. A hang strikes at one call of that step."""

    KINDS: ClassVar[Iterable[str]] = tuple(CLASSES)
    USED_BY: ClassVar[Mapping[str, Iterable[str]]] = {
        "how": ("mismatch",),
        "call": ("never_calls", "mismatch", "never_ends"),
        "factor": ("slow_compute", "slow_host", "slow_link"),
        "pause_ns": ("stalls",),
        "every": ("stalls",),
    }

    ranks: tuple[int, ...]
    step: int = 10
    how: str = "operation"
    # Which call of the step, as a share of its calls.
    call: float = field(default=0.5, metadata={"dimension": "ratio"})
    factor: float = 1.6
    pause_ns: int = quantity("1 s")
    every: int = 3  # steps between two stalls

    def problems(self) -> Iterable[str]:
        if not self.ranks:
            yield f"{self.kind} needs `ranks`"
        if self.how not in MISMATCHES:
            yield f"`how: {self.how}` is none of {', '.join(MISMATCHES)}"
        if not 0 <= self.call < 1:
            yield "`call` is a share from 0 to below 1"
        if self.factor < 1 or self.every < 1 or self.step < 0:
            yield "`factor` and `every` are 1 and more, `step` is not negative"

    @property
    def hangs(self) -> bool:
        return CLASSES[self.kind].startswith("H")
