"""Faults as causes: what breaks on which ranks, when, and how badly.

Those of CCL-D 2.2 act on the training itself; those of TFD Table 1 and its kin act on devices and
hosts, which measurements show, and training follows from them (`measured`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

from oncall.core.errors import UsageError
from oncall.core.units import NS_PER_S

ROLES = Literal["tp", "pp", "dp", "ep", "world"]

# The first is the default.
WAYS: Mapping[str, tuple[str, ...]] = {
    # stop: SIGSTOP or a loop in user code. crash: the last rows were never sealed.
    # vanish: the process died and took everything it had recorded along.
    "H1": ("stop", "crash", "vanish"),
    # operation: another collective. smaller, larger: another count.
    # order: this collective and the next, on another communicator, the other way round.
    "H2": ("operation", "smaller", "larger", "order"),
    # hardware: of the rank's GPU or NIC, as the scenario's seed will have it.
    "H3": ("hardware", "gpu", "nic"),
    # throttle: every computation takes longer. pauses: garbage collection, preemption.
    # data: longer samples, another share each step.
    "S1": ("throttle", "pauses", "data"),
    "S2": ("link",),
    "S3": ("throttle",),
}
# Faults of what is measured, each with the ways its evidence differs; the first is the default.
MEASURED_WAYS: Mapping[str, tuple[str, ...]] = {
    # TFD Table 1: host machine, network, application and training framework.
    "PCIE_LINK": ("width", "generation", "replays", "silent", "gpu"),
    "NVLINK": ("down", "errors", "xid"),
    "GPU": ("ecc", "xid", "remap", "slow", "slowdown"),
    "HOST_MEMORY": ("errors", "pressure", "bandwidth"),
    "PCIE_PORT": ("errors", "retrained", "silent"),
    "NIC": ("stalls", "resets", "discards", "slow"),
    "CABLE": ("fec", "symbols", "flaps"),
    "SWITCH": ("loss", "congestion", "restart"),
    "LINK": ("rate", "lanes", "shaped"),
    "PFC_DEADLOCK": ("mutual", "network"),
    "RESOURCES": ("shared", "affinity", "quota", "numa"),
    "PATTERN": ("spread", "rails", "sockets"),
    "SCHEDULING": ("storage", "priority"),
    "SETTINGS": ("channels", "protocol"),
    "MEMORY": ("gpu", "swap"),
    # Beyond it.
    "THROTTLE": ("power", "thermal", "hot", "brake"),
    "CPU_STARVED": ("hog", "clock"),
    "CPU_QUOTA": ("node", "rank"),
    "NUMA": ("other",),
    "GC": ("regular", "growing"),
    "DATA_LOADER": ("storage", "workers", "silent"),
    "SLOW_NODE": ("several",),
}
SEVERITIES = {1: "mild", 2: "moderate", 3: "severe"}
OUTCOMES = Literal["stuck", "odd_finishes", "others_finish"]
_USED_BY: Mapping[str, tuple[str, ...]] = {
    "outcome": ("H2",),
    "progress": ("H3",),
    "factor": ("S1", "S2", "S3"),
    "link_factor": ("S3",),
    "lasting_ns": ("S1", "S2", "S3", *MEASURED_WAYS),
    "pause_ns": ("S1",),
    "period_ns": ("S1",),
    "severity": tuple(MEASURED_WAYS),
}


def _duration(default_s: float | None, key: str) -> Any:
    default = None if default_s is None else round(default_s * NS_PER_S)
    return field(default=default, metadata={"dimension": "duration", "key": key})


@dataclass(frozen=True)
class Fault:
    """One cause. A hang strikes at the first operation of `role` its rank reaches after `at`."""

    kind: str = field(metadata={"key": "fault"})
    ranks: tuple[int, ...]
    at_ns: int = _duration(150, "at")  # after CCL-D's two minutes of baseline
    lasting_ns: int | None = _duration(None, "lasting")  # slow faults; unset: to the end
    role: str = field(default="", metadata={"key": "in"})  # tp, pp, dp, ep, world; "": any
    how: str = ""
    outcome: str = ""  # H2: stuck, odd_finishes or others_finish; unset: what `how` leads to
    # H3: share of the operation done when the hardware stops.
    progress: float = field(default=0.4, metadata={"dimension": "ratio"})
    factor: float = 3.0  # S1, S3: of computing time. S2: of the link's transfer time
    link_factor: float = 8.0  # S3: of the link's transfer time
    pause_ns: int = _duration(1, "pause")  # S1 pauses
    period_ns: int = _duration(10, "period")  # S1 pauses
    severity: int = 2  # of what is measured: 1 mild, 2 moderate, 3 severe

    def __post_init__(self) -> None:
        object.__setattr__(self, "ranks", tuple(dict.fromkeys(self.ranks)))
        self._check_words()
        for item in fields(self):
            users = _USED_BY.get(item.name)
            if users and self.kind not in users and getattr(self, item.name) != item.default:
                key = item.metadata.get("key", item.name)
                raise UsageError(f"faults: `{key}` means nothing for {self.kind}")
        if not self.ranks:
            raise UsageError(f"faults: {self.kind} needs a `rank`")
        if not 0 <= self.progress < 1:
            raise UsageError("faults: `progress` is a share from 0 to below 1")
        if min(self.factor, self.link_factor) < 1:
            raise UsageError("faults: a factor below 1 would be a cure")
        if self.at_ns < 0 or self.period_ns <= 0 or self.pause_ns < 0:
            raise UsageError("faults: `at`, `pause` and `period` are not negative")
        if self.severity not in SEVERITIES:
            raise UsageError("faults: `severity` is 1 (mild), 2 (moderate) or 3 (severe)")
        if self.kind == "H2" and self.role == "pp":
            raise UsageError("faults: H2 is about collectives; `in: pp` has Send and Recv only")

    def _check_words(self) -> None:
        ways = {**WAYS, **MEASURED_WAYS}
        if self.kind not in ways:
            raise UsageError(f"faults: `{self.kind}` is none of {', '.join(ways)}")
        if not self.how:
            object.__setattr__(self, "how", ways[self.kind][0])
        if self.kind == "H2" and not self.outcome:
            usual = {"smaller": "odd_finishes", "larger": "others_finish"}
            object.__setattr__(self, "outcome", usual.get(self.how, "stuck"))
        for key, value, known in (
            ("in", self.role, ("", *get_args(ROLES))),
            ("how", self.how, ways[self.kind]),
            ("outcome", self.outcome, ("", *get_args(OUTCOMES))),
        ):
            if value not in known:
                choice = ", ".join(word for word in known if word)
                raise UsageError(f"faults: `{key}: {value}` is none of {choice}")

    @property
    def hangs(self) -> bool:
        """Does it stop the job (H1, H2, H3) rather than slow it?"""
        return self.kind in ("H1", "H2", "H3")

    @property
    def is_measured(self) -> bool:
        """Does it act on devices and hosts, and show in what is measured of them?"""
        return self.kind in MEASURED_WAYS

    def active(self, now_ns: float) -> bool:
        """Is a slow fault at work at this moment of the training?"""
        lasting = float("inf") if self.lasting_ns is None else self.lasting_ns
        return self.at_ns <= now_ns < self.at_ns + lasting
