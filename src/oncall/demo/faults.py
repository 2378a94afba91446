"""The faults of CCL-D 2.2, each injected into one process of the job.

`orders` are faults of the stand-in for NCCL and of the small job
(fixtures/nccl_standin/README.md); `signal` is sent to the process instead. Neither leaves a name in
the evidence: a diagnosis sees only the effects.
"""

from __future__ import annotations

import difflib
import signal
from dataclasses import dataclass, replace

from oncall.core.errors import UsageError


@dataclass(frozen=True)
class Fault:
    """One fault, and the diagnosis it should lead to.

    `verdicts` are the correct ones: CCL-D's class, and that of a rulebook which sees more; none:
    no finding. `ranks` are the culprits: the first one is broken, a second one is the other end of
    its link, which no recording can tell apart.
    """

    name: str
    verdicts: tuple[str, ...]
    ranks: tuple[int, ...]
    truth: str
    orders: tuple[str, ...] = ()
    signal: signal.Signals | None = None

    @property
    def hangs(self) -> bool:
        """Does it stop the job, rather than slow it?"""
        return self.name.startswith("H")

    @property
    def broken(self) -> int:
        """The rank that is broken. Only of faults that break one."""
        return self.ranks[0]

    def on(self, rank: int) -> Fault:
        """The same with another rank broken."""
        return replace(self, ranks=(rank, *self.ranks[1:]))

    def order(self) -> str:
        """What the stand-in reads: `kind,rank=5,...`, one fault a line."""
        return "".join(f"{each},rank={self.broken}\n" for each in self.orders)


_SLOW_GPU = "slow-compute,delay_us=20000"
_SLOW_LINK = "slow-link,bytes_per_s=5000000"

FAULTS = (
    Fault("H1", ("H1",), (5,), "its program hangs before an all-reduce", ("not-entered,comm=dp",)),
    Fault("H1-stopped", ("STOPPED",), (5,), "its process is stopped (SIGSTOP)", (), signal.SIGSTOP),
    Fault("H1-died", ("DEAD",), (5,), "its process is killed (SIGKILL)", (), signal.SIGKILL),
    Fault(
        "H2",
        ("H2",),
        (2,),
        "it calls another collective than the rest",
        ("wrong-operation,comm=dp",),
    ),
    Fault(
        "H2-size", ("H2",), (2,), "it passes another size than the rest", ("wrong-size,comm=dp",)
    ),
    Fault("H3", ("H3", "W1"), (6,), "its GPU stops inside an all-reduce", ("stall-gpu,comm=tp",)),
    Fault(
        "H3-link",
        ("H3", "W3"),
        (6, 7),
        "what it sends to rank 7 gets lost",
        ("stall-link,comm=tp",),
    ),
    Fault("S1", ("S1",), (3,), "its GPU computes slower", (_SLOW_GPU,)),
    Fault("S2", ("S2", "W5"), (1,), "its link is throttled", (_SLOW_LINK,)),
    Fault(
        "S3",
        ("S3",),
        (3,),
        "its GPU computes slower, its link is throttled",
        (_SLOW_GPU, _SLOW_LINK),
    ),
    Fault("healthy", (), (), "nothing is broken"),
)


@dataclass(frozen=True)
class Break:
    """A fault that a person causes with a key: `word` is what the key does, `done` what the rank is
    then, `fault` the name in FAULTS."""

    key: str
    word: str
    done: str
    fault: str


BREAKS = (
    Break("s", "stop", "is stopped", "H1-stopped"),
    Break("w", "slow", "computes slower", "S1"),
    Break("k", "kill", "is killed", "H1-died"),
    Break("m", "mismatch", "calls another collective", "H2"),
    Break("f", "freeze", "has a frozen GPU", "H3"),
)


def fault_named(name: str) -> Fault:
    """The fault of that name. Raises UsageError, with what it may have meant."""
    for fault in FAULTS:
        if fault.name.casefold() == name.casefold():
            return fault
    names = [fault.name for fault in FAULTS]
    near = difflib.get_close_matches(name.capitalize(), names, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}"
    raise UsageError(f"--fault {name}: {hint}")
