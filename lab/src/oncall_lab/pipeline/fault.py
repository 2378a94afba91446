"""Faults of a pipeline: a delay or a hang at one place, and ranks or links that stay slow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from oncall_lab.scenario import Fault, quantity

KINDS = ("delay", "hang", "slow", "sporadic", "link")
COMPUTATIONS = ("forward", "backward")
TRANSMISSIONS = ("forward_send", "backward_send")


@dataclass(frozen=True)
class PipelineFault(Fault):
    """One fault (VenusTrace 5.1, and 2.2 for the sporadic one).

    delay, hang: in one task, or in the transmission of its result, of one micro-batch, once; a
    hang is a delay without end. slow: all that the rank computes takes `factor` times as long
    from `iteration` on; sporadic: the same for `lasting` every `period`. link: all that the rank
    sends to other stages takes `factor` times as long.
    """

    KINDS: ClassVar[Iterable[str]] = KINDS
    USED_BY: ClassVar[Mapping[str, Iterable[str]]] = {
        "task": ("delay", "hang"),
        "micro_batch": ("delay", "hang"),
        "chunk": ("delay", "hang"),
        "delay_ns": ("delay",),
        "factor": ("slow", "sporadic", "link"),
        "period_ns": ("sporadic",),
        "lasting_ns": ("sporadic",),
    }

    rank: int = 0
    iteration: int = 5  # counted from 0
    task: str = "forward"
    micro_batch: int = 0
    chunk: int = 0
    delay_ns: int = quantity("1 s")
    factor: float = 2.0
    period_ns: int = quantity("2 min")
    lasting_ns: int = quantity("4 s")

    def problems(self) -> Iterable[str]:
        known = (*COMPUTATIONS, *TRANSMISSIONS)
        if self.task not in known:
            yield f"`task: {self.task}` is none of {', '.join(known)}"
        if min(self.rank, self.iteration, self.micro_batch, self.chunk) < 0:
            yield "`rank`, `iteration`, `micro_batch` and `chunk` are not negative"
        if self.factor < 1:
            yield "a factor below 1 would be a cure"
        if self.delay_ns < 0 or self.lasting_ns < 0 or self.period_ns <= 0:
            yield "`delay`, `lasting` and `period` are not negative"

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
