"""What a job's faults cost so far, in GPU time: all of a stopped job's, a share of a slow one's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from oncall.core.diagnosis import Diagnosis
from oncall.core.units import NS_PER_S
from oncall.views import words

_S_PER_HOUR = 3600


@dataclass(frozen=True)
class Losing:
    """How many GPUs a cause takes from the job, `gpus` (of `ranks`, one each), and since when, Unix
    ns. `cause` is `rulebook.VERDICT`, `finding` its id; `who` it waits for."""

    finding: str
    cause: str
    who: str
    ranks: int
    gpus: float
    since_ns: int

    def seconds(self, until_ns: int) -> float:
        """GPU-seconds lost by then."""
        return self.gpus * max(0, until_ns - self.since_ns) / NS_PER_S


@dataclass(frozen=True)
class Price:
    """What a GPU-hour costs, and in which currency."""

    a_gpu_hour: float
    currency: str = ""

    def of(self, seconds: float) -> str:
        return f"{self.a_gpu_hour * seconds / _S_PER_HOUR:,.0f} {self.currency}".strip()


@dataclass(frozen=True)
class Lost:
    """GPU-seconds by cause since the job was first looked at, and until when each is counted."""

    seconds: Mapping[str, float] = field(default_factory=dict)
    until_ns: Mapping[str, int] = field(default_factory=dict)

    def then(self, losing: Sequence[Losing], now_ns: int) -> Lost:
        """After one more look, at which the job was losing so much. It never falls."""
        seconds, until_ns = dict(self.seconds), dict(self.until_ns)
        for one in losing:
            from_ns = max(one.since_ns, until_ns.get(one.cause, one.since_ns))
            added = one.gpus * max(0, now_ns - from_ns) / NS_PER_S
            seconds[one.cause] = seconds.get(one.cause, 0.0) + added
            until_ns[one.cause] = max(now_ns, from_ns)
        return Lost(seconds, until_ns)


def losing(diagnosis: Diagnosis) -> tuple[Losing, ...]:
    """What each root cause takes. A job that has stopped loses all to the first that stops it, as
    nothing more is left to lose."""
    ranks = diagnosis.coverage.ranks
    found = []
    for root in words.roots(diagnosis):
        stops = words.stops(root) and root.severity == "critical"
        share = 1.0 if stops else root.lost.share if root.lost and not words.over(root) else 0.0
        if not ranks or root.at_ns is None or root.severity == "info" or share <= 0:
            continue
        cause, who = f"{root.rulebook}.{root.verdict}", words.who(root.blame) if root.blame else ""
        one = Losing(root.id, cause, who, ranks, ranks * share, root.at_ns)
        if stops:
            return (one,)
        found.append(one)
    return tuple(found)


def phrase(one: Losing, until_ns: int, price: Price | None = None) -> str:
    """`64 GPUs wait for rank 37: 1.2 GPU-hours lost since 03:02:11 UTC`."""
    seconds = one.seconds(until_ns)
    if one.gpus == one.ranks:
        gpus = f"{one.ranks:,} {'GPU waits' if one.ranks == 1 else 'GPUs wait'}"
    else:
        gpus = f"{one.gpus:,.1f} of {one.ranks:,} GPUs wait"
    waits = f"{gpus} for {one.who}" if one.who else gpus
    cost = f" ({price.of(seconds)})" if price is not None else ""
    since = words.instant(one.since_ns, date=False)
    return f"{waits}: {gpu_time(seconds)} lost{cost} since {since}"


def gpu_time(seconds: float) -> str:
    """`1.2 GPU-hours`, or of little `35 GPU-seconds`."""
    hours = seconds / _S_PER_HOUR
    return f"{hours:,.1f} GPU-hours" if hours >= 0.1 else f"{seconds:,.0f} GPU-seconds"
