"""The training itself: step after step of slots, each rank going on when it becomes free."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from oncall_lab.arrays import Floats
from oncall_lab.training.cluster import Cluster
from oncall_lab.training.disturbance import Disturbances
from oncall_lab.training.effects import Effect, effects_of
from oncall_lab.training.meeting import Meeting
from oncall_lab.training.scenario import TrainingScenario
from oncall_lab.training.schedule import Slot, barrier_slot, step_slots

LAUNCH_NS = 10_000.0  # from one kernel to the next
TAIL_NS = 1_500.0  # mean spread of leaving times


@dataclass
class Played:
    """What happened: every meeting in order, and when steps ended (ns since the job began)."""

    cluster: Cluster
    meetings: list[Meeting] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    steps: list[tuple[float, float]] = field(default_factory=list)  # begin, end; no checkpoint
    until_ns: float = 0.0


class Conditions(Protocol):
    """The condition of devices and hosts, as far as training feels it."""

    def step(self, free_ns: Floats) -> None:
        """A training step begins: `free_ns` may change."""

    def compute(self, meeting: Meeting) -> None:
        """Before anybody arrives: `compute_ns` may change."""

    def transfer(self, meeting: Meeting) -> None:
        """Arrivals are known: `stretch` may change."""


class Training:
    """Plays a scenario; `play` returns everything that happened."""

    def __init__(
        self, scenario: TrainingScenario, cluster: Cluster, conditions: Conditions | None = None
    ) -> None:
        self.scenario = scenario
        self.cluster = cluster
        self.conditions = conditions
        self.free_ns: Floats = np.zeros(cluster.world_size)
        self.disturbances = Disturbances(scenario, scenario.rng("disturbances"))
        self.played = Played(cluster, until_ns=float(scenario.duration_ns))
        for number, fault in enumerate(scenario.faults):
            rng = scenario.rng(f"fault {number}")
            self.played.effects += effects_of(fault, cluster, rng)
        self._jitter = scenario.rng("jitter")
        self._sequence = dict.fromkeys(cluster.families, 0)
        self._p2p_sequence = [0] * scenario.pp
        self._nominal: dict[int, Floats] = {}
        self._plain = step_slots(scenario, cluster)
        self._with_barrier = step_slots(scenario, cluster, barrier=True)
        self._settings = next((f for f in scenario.faults if f.kind == "SETTINGS"), None)
        self._set_otherwise = step_slots(scenario, cluster, fault=self._settings)
        self._after_checkpoint = (barrier_slot(cluster),)

    def play(self) -> Played:
        """Train until the time is over or nobody can go on."""
        step = 0
        while self._now() < self.played.until_ns:
            begin = self._latest()
            self._step(step)
            if np.isfinite(self.free_ns).all():
                self.played.steps.append((begin, self._latest()))
            self._checkpoint(step)
            step += 1
        return self.played

    def _now(self) -> float:
        """When the earliest rank that can go on becomes free."""
        return float(self.free_ns.min(where=np.isfinite(self.free_ns), initial=np.inf))

    def _latest(self) -> float:
        return float(self.free_ns.max(where=np.isfinite(self.free_ns), initial=0.0))

    def _step(self, step: int) -> None:
        scenario = self.scenario
        for effect in self.played.effects:
            effect.on_step()
        self.disturbances.delay_batches(self.free_ns, self.cluster)
        if self.conditions:
            self.conditions.step(self.free_ns)
        if self._settings and self._settings.active(self._now()):
            self._run(self._set_otherwise, step)
            return
        barrier = scenario.barrier_every and step and step % scenario.barrier_every == 0
        self._run(self._with_barrier if barrier else self._plain, step)

    def _checkpoint(self, step: int) -> None:
        if self.disturbances.checkpoint_due(self._now()):
            self.disturbances.save_checkpoint(self.free_ns)
            self._run(self._after_checkpoint, step)

    def _run(self, slots: tuple[Slot, ...], step: int) -> None:
        """Play slots; all their random numbers are drawn at once."""
        slow = self.disturbances.warm_up(step)
        sigma = self.disturbances.jitter(self._now())
        sizes = np.cumsum([0] + [slot.family.members.size for slot in slots])
        groups = np.cumsum([0] + [len(slot.family.members) for slot in slots])
        compute = slow * np.exp(sigma * self._jitter.standard_normal(sizes[-1]))
        transfer = slow * np.exp(sigma * self._jitter.standard_normal(groups[-1]))
        tail = TAIL_NS * self._jitter.standard_exponential(sizes[-1])
        for index, slot in enumerate(slots):
            own = slice(sizes[index], sizes[index + 1])
            self._meet(
                slot,
                compute[own].reshape(slot.family.members.shape),
                transfer[groups[index] : groups[index + 1]],
                tail[own].reshape(slot.family.members.shape),
            )

    def _meet(self, slot: Slot, compute: Floats, transfer: Floats, tail: Floats) -> None:
        members = slot.family.members
        meeting = Meeting(
            slot,
            serial=len(self.played.meetings),
            seq=self._number(slot),
            free_ns=self.free_ns[members],
            compute_ns=compute * slot.compute_ns + LAUNCH_NS,
            transfer_ns=transfer * self._nominal_ns(slot),
            tail_ns=tail,
            stretch=np.ones(len(members)),
        )
        for effect in self.played.effects:
            effect.on_compute(meeting)
        if self.conditions:
            self.conditions.compute(meeting)
        meeting.arrive()
        for effect in self.played.effects:
            effect.on_transfer(meeting)
        if self.conditions:
            self.conditions.transfer(meeting)
        meeting.transfer()
        for effect in self.played.effects:
            effect.on_end(meeting)
            self._watch(effect)
        self.free_ns[members] = meeting.end_ns
        self.played.meetings.append(meeting)

    def _watch(self, effect: Effect) -> None:
        """From the first hang on, the job is observed for as long as the scenario says."""
        if effect.fault.hangs and effect.strikes:
            hung = [e for e in self.played.effects if e.fault.hangs and e.strikes]
            first = min(e.strikes[0].at_ns for e in hung)
            self.played.until_ns = first + self.scenario.observe_after_ns

    def _number(self, slot: Slot) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
        """The operation's number on each column, by lane: collectives and Send/Recv apart."""
        lanes = len(slot.lanes)
        key = slot.family.role, slot.family.stage
        if not slot.is_p2p:
            self._sequence[key] += 1
            return np.full((1, slot.family.size), self._sequence[key], dtype=np.int64)
        numbers = np.empty((lanes, 2), dtype=np.int64)
        for column, stage in enumerate((slot.family.stage, slot.family.stage + 1)):
            numbers[:, column] = self._p2p_sequence[stage] + 1 + np.arange(lanes)
            self._p2p_sequence[stage] += lanes
        return numbers

    def _nominal_ns(self, slot: Slot) -> Floats:
        """Transfer time of the slot without jitter, by group."""
        if id(slot) not in self._nominal:
            s, family = self.scenario, slot.family
            tree = family.role in s.tree
            shape = slot.shape(slot.lanes[0][0], tree=tree)
            rate = np.where(family.network, s.network_bytes_per_s, s.nvlink_bytes_per_s)
            self._nominal[id(slot)] = shape.duration_ns(rate * slot.speed, s.latency_ns)
        return self._nominal[id(slot)]
