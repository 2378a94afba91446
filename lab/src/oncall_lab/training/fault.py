"""Faults as causes: what breaks on which ranks, when, and how badly.

Those of CCL-D 2.2 act on the training itself; those of TFD Table 1 and its kin act on devices and
hosts, which measurements show, and training follows from them (`measured`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Self, get_args

from oncall_lab.scenario import Fault, quantity

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
_ALL_WAYS = {**WAYS, **MEASURED_WAYS}
SEVERITIES = {1: "mild", 2: "moderate", 3: "severe"}
OUTCOMES = Literal["stuck", "odd_finishes", "others_finish"]


@dataclass(frozen=True)
class TrainingFault(Fault):
    """One cause. A hang strikes at the first operation of `role` its rank reaches after `at`."""

    KINDS: ClassVar[Iterable[str]] = (*WAYS, *MEASURED_WAYS)
    USED_BY: ClassVar[Mapping[str, Iterable[str]]] = {
        "outcome": ("H2",),
        "progress": ("H3",),
        "factor": ("S1", "S2", "S3"),
        "link_factor": ("S3",),
        "lasting_ns": ("S1", "S2", "S3", *MEASURED_WAYS),
        "pause_ns": ("S1",),
        "period_ns": ("S1",),
        "severity": tuple(MEASURED_WAYS),
    }

    ranks: tuple[int, ...]
    at_ns: int = quantity("150 s")  # after CCL-D's two minutes of baseline
    lasting_ns: int | None = quantity(None)  # slow faults; unset: to the end
    role: str = field(default="", metadata={"key": "in"})  # tp, pp, dp, ep, world; "": any
    how: str = ""
    outcome: str = ""  # H2: stuck, odd_finishes or others_finish; unset: what `how` leads to
    # H3: share of the operation done when the hardware stops.
    progress: float = field(default=0.4, metadata={"dimension": "ratio"})
    factor: float = 3.0  # S1, S3: of computing time. S2: of the link's transfer time
    link_factor: float = 8.0  # S3: of the link's transfer time
    pause_ns: int = quantity("1 s")  # S1 pauses
    period_ns: int = quantity("10 s")  # S1 pauses
    severity: int = 2  # of what is measured: 1 mild, 2 moderate, 3 severe

    def __post_init__(self) -> None:
        object.__setattr__(self, "ranks", tuple(dict.fromkeys(self.ranks)))
        if self.kind in self.KINDS and not self.how:
            object.__setattr__(self, "how", _ALL_WAYS[self.kind][0])
        if self.kind == "H2" and not self.outcome:
            outcomes = {"smaller": "odd_finishes", "larger": "others_finish"}
            object.__setattr__(self, "outcome", outcomes.get(self.how, "stuck"))
        super().__post_init__()

    def problems(self) -> Iterable[str]:
        for key, value, known in (
            ("in", self.role, ("", *get_args(ROLES))),
            ("how", self.how, _ALL_WAYS[self.kind]),
            ("outcome", self.outcome, ("", *get_args(OUTCOMES))),
        ):
            if value not in known:
                yield f"`{key}: {value}` is none of {', '.join(word for word in known if word)}"
        if not self.ranks:
            yield f"{self.kind} needs a `rank`"
        if not 0 <= self.progress < 1:
            yield "`progress` is a share from 0 to below 1"
        if min(self.factor, self.link_factor) < 1:
            yield "a factor below 1 would be a cure"
        if self.at_ns < 0 or self.period_ns <= 0 or self.pause_ns < 0:
            yield "`at`, `pause` and `period` are not negative"
        if self.severity not in SEVERITIES:
            yield "`severity` is 1 (mild), 2 (moderate) or 3 (severe)"
        if self.kind == "H2" and self.role == "pp":
            yield "H2 is about collectives; `in: pp` has Send and Recv only"

    @classmethod
    def from_mapping(cls, mapping: Any) -> Self:
        """A fault from its YAML. `rank: 5` and `ranks: 0-2,5` are the same key."""
        if isinstance(mapping, Mapping):
            mapping = {("ranks" if key == "rank" else key): value for key, value in mapping.items()}
        return super().from_mapping(mapping)

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
