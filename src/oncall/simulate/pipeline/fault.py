"""Faults of a pipeline: a delay or a hang at one place, and ranks or links that stay slow."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from oncall.core.errors import UsageError
from oncall.core.units import parse_quantity

KINDS = ("delay", "hang", "slow", "sporadic", "link")
COMPUTATIONS = ("forward", "backward")
TRANSMISSIONS = ("forward_send", "backward_send")
# Which kinds each key means something for.
_USED_BY = {
    "task": ("delay", "hang"),
    "micro_batch": ("delay", "hang"),
    "chunk": ("delay", "hang"),
    "delay_ns": ("delay",),
    "factor": ("slow", "sporadic", "link"),
    "period_ns": ("sporadic",),
    "lasting_ns": ("sporadic",),
}


def _duration(text: str, key: str) -> Any:
    return field(default=parse_quantity(text).value, metadata={"dimension": "duration", "key": key})


@dataclass(frozen=True)
class PipelineFault:
    """One fault (VenusTrace 5.1, and 2.2 for the sporadic one).

    delay, hang: in one task, or in the transmission of its result, of one micro-batch, once; a
    hang is a delay without end. slow: all that the rank computes takes `factor` times as long
    from `iteration` on; sporadic: the same for `lasting` every `period`. link: all that the rank
    sends to other stages takes `factor` times as long.
    """

    kind: str = field(metadata={"key": "fault"})
    rank: int = 0
    iteration: int = 5  # counted from 0
    task: str = "forward"
    micro_batch: int = 0
    chunk: int = 0
    delay_ns: int = _duration("1 s", "delay")
    factor: float = 2.0
    period_ns: int = _duration("2 min", "period")
    lasting_ns: int = _duration("4 s", "lasting")

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UsageError(f"faults: `{self.kind}` is none of {', '.join(KINDS)}")
        if self.task not in (*COMPUTATIONS, *TRANSMISSIONS):
            known = ", ".join((*COMPUTATIONS, *TRANSMISSIONS))
            raise UsageError(f"faults: `task: {self.task}` is none of {known}")
        if min(self.rank, self.iteration, self.micro_batch, self.chunk) < 0:
            raise UsageError(
                "faults: `rank`, `iteration`, `micro_batch` and `chunk` are not negative"
            )
        if self.factor < 1:
            raise UsageError("faults: a factor below 1 would be a cure")
        if self.delay_ns < 0 or self.lasting_ns < 0 or self.period_ns <= 0:
            raise UsageError("faults: `delay`, `lasting` and `period` are not negative")
        for name, kinds in _USED_BY.items():
            item = self.__dataclass_fields__[name]
            if self.kind not in kinds and getattr(self, name) != item.default:
                key = item.metadata.get("key", name)
                raise UsageError(f"faults: `{key}` means nothing for {self.kind}")

    @property
    def hangs(self) -> bool:
        return self.kind == "hang"

    @property
    def strikes_once(self) -> bool:
        """Is it at one place of one iteration?"""
        return self.kind in ("delay", "hang")

    @property
    def transmits(self) -> bool:
        """Does it act on what is sent to another stage rather than on a computation?"""
        return self.kind == "link" or (self.strikes_once and self.task in TRANSMISSIONS)

    @property
    def added_ns(self) -> float:
        """What a delay or hang adds at its place."""
        return float("inf") if self.hangs else float(self.delay_ns)
