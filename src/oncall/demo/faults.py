"""The faults of CCL-D 2.2, each as something that really happens to one process of the job.

`told` is what the stand-in for NCCL and the small job are told to break
(fixtures/nccl_standin/README.md); `signal` is what the process is sent instead. Neither leaves a
name in the evidence: a diagnosis sees only what follows.
"""

from __future__ import annotations

import difflib
import signal
from dataclasses import dataclass

from oncall.errors import UsageError


@dataclass(frozen=True)
class Fault:
    """One thing to break, and the verdict that should come of it (None: no finding)."""

    name: str
    verdict: str | None
    rank: int | None
    truth: str
    told: tuple[str, ...] = ()
    signal: signal.Signals | None = None

    @property
    def hangs(self) -> bool:
        """Does it stop the job, rather than slow it?"""
        return self.verdict is not None and self.verdict.startswith("H")

    def order(self) -> str:
        """What the stand-in reads: `kind,rank=5,...`, one fault a line."""
        return "".join(f"{each},rank={self.rank}\n" for each in self.told)


HEALTHY = Fault("healthy", None, None, "nothing is broken")

FAULTS = (
    Fault("H1", "H1", 5, "its program stops before its next collective", ("not-entered,comm=dp",)),
    Fault("H1-stopped", "H1", 5, "its process is stopped (SIGSTOP)", signal=signal.SIGSTOP),
    Fault("H1-died", "H1", 5, "its process is killed (SIGKILL)", signal=signal.SIGKILL),
    Fault(
        "H2", "H2", 2, "it calls another collective than its peers", ("wrong-operation,comm=dp",)
    ),
    Fault("H2-size", "H2", 2, "it passes another size than its peers", ("wrong-size,comm=dp",)),
    Fault("H3", "H3", 6, "its GPU stops inside a collective", ("stall-gpu,comm=dp",)),
    Fault("H3-link", "H3", 6, "its link swallows what it sends", ("stall-link,comm=dp",)),
    Fault("S1", "S1", 3, "it computes slower than its peers", ("slow-compute,delay_us=20000",)),
    Fault("S2", "S2", 1, "its link is throttled", ("slow-link,bytes_per_s=2000000",)),
    Fault(
        "S3",
        "S3",
        3,
        "it computes slower, and its link is throttled",
        ("slow-compute,delay_us=20000", "slow-link,bytes_per_s=2000000"),
    ),
    HEALTHY,
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
