"""What each fault does to a meeting. A fault changes its own rank's time, link or call, no more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from oncall_lab.arrays import Bools
from oncall_lab.training.algorithm import SMALL_BYTES
from oncall_lab.training.cluster import Cluster, Family
from oncall_lab.training.fault import TrainingFault
from oncall_lab.training.meeting import Meeting, Mismatch, Stall, Strain


@dataclass(frozen=True)
class Strike:
    """A fault came to act: on whom, in which operations, when (ns since the job began)."""

    ranks: tuple[int, ...]
    comms: tuple[int, ...]
    at_ns: float
    role: str = ""
    seq: int | None = None


class Effect:
    """A fault at work. Hooks come in the order of a meeting; each may change what it is about."""

    def __init__(self, fault: TrainingFault, cluster: Cluster, rng: np.random.Generator) -> None:
        self.fault = fault
        self.cluster = cluster
        self.rng = rng
        self.strikes: list[Strike] = []
        self._masks: dict[tuple[str, int], Bools | None] = {}

    def on_step(self) -> None:
        """A training step begins."""

    def on_compute(self, meeting: Meeting) -> None:
        """Before anybody arrives: `compute_ns` may change."""

    def on_transfer(self, meeting: Meeting) -> None:
        """Arrivals are known: `stretch` may change."""

    def on_end(self, meeting: Meeting) -> None:
        """Ends are known and may change."""

    def mask(self, family: Family) -> Bools | None:
        """(G, n): where the fault's ranks sit in this family; None if nowhere."""
        key = family.role, family.stage
        if key not in self._masks:
            mask: Bools = np.isin(family.members, self.fault.ranks)
            self._masks[key] = mask if mask.any() else None
        return self._masks[key]

    def places(self, family: Family) -> list[tuple[int, int]]:
        """(group, column) of the fault's ranks in this family, if the fault is about its role."""
        if self.fault.role not in ("", family.role) or self.mask(family) is None:
            return []
        found = [family.place(rank) for rank in self.fault.ranks]
        return [place for place in found if place is not None]

    def struck(self, meeting: Meeting, places: Sequence[tuple[int, int]], at_ns: float) -> None:
        """Keep for the truth what happened here."""
        family = meeting.family
        group, column = places[0]
        self.strikes.append(
            Strike(
                tuple(int(family.members[place]) for place in places),
                (int(family.comms[group]),),
                at_ns,
                family.role,
                int(meeting.seq[0, column]),
            )
        )


class NotEntered(Effect):
    """H1: the rank stops computing before its next operation and never arrives."""

    def __init__(self, fault: TrainingFault, cluster: Cluster, rng: np.random.Generator) -> None:
        super().__init__(fault, cluster, rng)
        self._alive = set(fault.ranks)

    def on_compute(self, meeting: Meeting) -> None:
        for place in self.places(meeting.family) if self._alive else ():
            rank = int(meeting.family.members[place])
            now = meeting.free_ns[place]
            if rank in self._alive and self.fault.at_ns <= now < np.inf:
                meeting.compute_ns[place] = np.inf
                self._alive.remove(rank)
                self.struck(meeting, [place], float(now))


class Inconsistent(Effect):
    """H2: the ranks call another operation, or another count, than their group."""

    _OTHERS = ("AllReduce", "AllGather", "ReduceScatter", "Broadcast")

    def on_end(self, meeting: Meeting) -> None:
        places = [] if meeting.slot.is_p2p or self.strikes else self.places(meeting.family)
        groups = {group for group, _ in places}
        if len(places) < len(self.fault.ranks) or len(groups) != 1:
            return
        group = groups.pop()
        if not self.fault.at_ns <= meeting.last_ns[group] < np.inf:
            return
        op, size_bytes = self._call(meeting)
        for place in places:
            meeting.mismatches.append(Mismatch(*place, op, size_bytes))
        self._part(meeting, group, [column for _, column in places], size_bytes)
        self.struck(meeting, places, float(meeting.last_ns[group]))

    def _call(self, meeting: Meeting) -> tuple[str, int]:
        op, size_bytes = meeting.slot.lanes[0][0], meeting.slot.size_bytes
        if self.fault.how == "operation":
            return str(self.rng.choice([name for name in self._OTHERS if name != op])), size_bytes
        # Whole elements of up to 8 bytes, but for a barrier's single byte.
        return op, max(1, size_bytes // 4) if self.fault.how == "smaller" else size_bytes * 4

    def _part(self, meeting: Meeting, group: int, odd: list[int], size_bytes: int) -> None:
        """Who gets out. What is smaller is done sooner; what does not fit waits forever."""
        ends = meeting.end_ns[group].copy()
        meeting.hang(group)
        share = float(self.rng.uniform(0.0, 0.2))
        if self.fault.outcome == "odd_finishes":
            meeting.end_ns[group, odd] = ends[odd]
            share = min(0.9, size_bytes / max(1, meeting.slot.size_bytes))
        elif self.fault.outcome == "others_finish":
            meeting.end_ns[group] = ends
            meeting.end_ns[group, odd] = np.inf
            share = 1.0
        meeting.stalls += [Stall(group, column, share) for column in odd]


class CrossedOrder(Effect):
    """H2: the rank calls this operation and its next, on another communicator, in crossed order.

    It waits in the second while its group waits in the first: nobody is absent everywhere.
    """

    def __init__(self, fault: TrainingFault, cluster: Cluster, rng: np.random.Generator) -> None:
        super().__init__(fault, cluster, rng)
        self._skipped: dict[int, tuple[Family, float]] = {}

    def on_compute(self, meeting: Meeting) -> None:
        family = meeting.family
        if meeting.slot.is_p2p or self.mask(family) is None:
            return
        for rank in self.fault.ranks:
            place = family.place(rank)
            if place is None:
                continue
            now = meeting.free_ns[place]
            if rank in self._skipped:
                skipped, since = self._skipped[rank]
                if since < np.inf and _share_another(rank, skipped, family):
                    meeting.free_ns[place] = since
                    self._skipped[rank] = skipped, np.inf
                    self.struck(meeting, [place], since)
            elif self.fault.role in ("", family.role) and self.fault.at_ns <= now < np.inf:
                meeting.compute_ns[place] = np.inf
                self._skipped[rank] = family, float(now)
                self.struck(meeting, [place], float(now))


def _share_another(rank: int, one: Family, other: Family) -> bool:
    """Does the rank meet somebody from its group of `one` in its group of `other`, too?

    Only then does either wait for what the other has not entered; `one` itself does not count.
    """
    here, there = one.place(rank), other.place(rank)
    if one is other or here is None or there is None:
        return False
    return len(np.intersect1d(one.members[here[0]], other.members[there[0]])) > 1


class Hardware(Effect):
    """H3: a GPU or NIC stops in the middle of an operation that everybody has entered."""

    def __init__(self, fault: TrainingFault, cluster: Cluster, rng: np.random.Generator) -> None:
        super().__init__(fault, cluster, rng)
        self._alive = set(fault.ranks)

    def on_end(self, meeting: Meeting) -> None:
        if not self._alive or not self._suits(meeting):
            return
        for place in self.places(meeting.family):
            rank = int(meeting.family.members[place])
            last = meeting.last_ns[place[0]]
            if rank in self._alive and self.fault.at_ns <= last < np.inf:
                meeting.hang(place[0])
                meeting.stalls.append(Stall(*place, self.fault.progress))
                self._alive.remove(rank)
                moved = meeting.transfer_ns[place[0]] * self.fault.progress
                self.struck(meeting, [place], float(last + moved))

    def _suits(self, meeting: Meeting) -> bool:
        """In the middle of: not of a few bytes, and of Send and Recv only if asked for."""
        if self.fault.role:
            return True
        return meeting.slot.size_bytes >= SMALL_BYTES and not meeting.slot.is_p2p


class SlowCompute(Effect):
    """S1: throttled clocks, pauses, or more data than the others."""

    def __init__(self, fault: TrainingFault, cluster: Cluster, rng: np.random.Generator) -> None:
        super().__init__(fault, cluster, rng)
        self._step_factor = fault.factor
        self._due_ns = np.full(cluster.world_size, float(fault.at_ns))

    def on_step(self) -> None:
        if self.fault.how == "data":
            self._step_factor = 1 + (self.fault.factor - 1) * float(self.rng.uniform(0.5, 1.5))

    def on_compute(self, meeting: Meeting) -> None:
        mask = self.mask(meeting.family)
        if mask is None:
            return
        until = (
            np.inf if self.fault.lasting_ns is None else self.fault.at_ns + self.fault.lasting_ns
        )
        now = meeting.free_ns
        acts = mask & (now >= self.fault.at_ns) & (now < until)
        if self.fault.how == "pauses":
            acts &= now >= self._due_ns[meeting.family.members]
            ranks = meeting.family.members[acts]
            spread = np.exp(0.2 * self.rng.standard_normal(len(ranks)))
            meeting.compute_ns[acts] += self.fault.pause_ns * spread
            self._due_ns[ranks] = now[acts] + self.fault.period_ns
        else:
            meeting.compute_ns[acts] *= self._step_factor
        if acts.any() and not self.strikes:
            families = [f for rank in self.fault.ranks for f in self.cluster.families_of(rank)]
            self.strikes.append(_slow_strike(self.fault, families, float(now[acts].min())))


class SlowLink(Effect):
    """S2: transfers through the rank's link take longer.

    The link is that to the network if the rank's groups use it, else the one within the node.
    """

    def __init__(self, fault: TrainingFault, cluster: Cluster, rng: np.random.Generator) -> None:
        super().__init__(fault, cluster, rng)
        self._families = self._through()
        self._factor = fault.link_factor if fault.kind == "S3" else fault.factor

    def _through(self) -> list[Family]:
        families = [
            family
            for rank in self.fault.ranks
            for family in self.cluster.families_of(rank, self.fault.role)
            if family.role != "world"
        ]
        network = [f for f in families if any(f.network[g] for g, _ in self.places(f))]
        return network or families

    def on_transfer(self, meeting: Meeting) -> None:
        if meeting.slot.size_bytes < SMALL_BYTES or meeting.family not in self._families:
            return
        for place in self.places(meeting.family):
            now = meeting.last_ns[place[0]]
            if np.isfinite(now) and self.fault.active(now):
                factor = max(1.0, self._factor * float(self.rng.uniform(0.9, 1.1)))
                meeting.stretch[place[0]] = max(meeting.stretch[place[0]], factor)
                meeting.strains.append(Strain(*place, factor))
                if not self.strikes:
                    self.strikes.append(_slow_strike(self.fault, self._families, float(now)))


class OfDevices(Effect):
    """A fault of devices or hosts: it acts through their condition (`measured`), from `at` on."""

    def __init__(self, fault: TrainingFault, cluster: Cluster, rng: np.random.Generator) -> None:
        super().__init__(fault, cluster, rng)
        self._begun = False

    def on_transfer(self, meeting: Meeting) -> None:
        if not self._begun and meeting.last_ns.max(initial=0.0) >= self.fault.at_ns:
            self._begun = True
            # A job is laid out when it begins.
            at_ns = 0.0 if self.fault.kind == "PATTERN" else float(self.fault.at_ns)
            self.strikes.append(Strike(self.fault.ranks, (), at_ns))


def _slow_strike(fault: TrainingFault, families: Sequence[Family], at_ns: float) -> Strike:
    comms = {
        int(family.comms[place[0]])
        for family in families
        for rank in fault.ranks
        if (place := family.place(rank)) is not None
    }
    return Strike(fault.ranks, tuple(sorted(comms)), at_ns, fault.role)


def effects_of(fault: TrainingFault, cluster: Cluster, rng: np.random.Generator) -> list[Effect]:
    """The effects of one fault: S3 is a slow rank and a slow link at once."""
    if fault.is_measured:
        return [OfDevices(fault, cluster, rng)]
    if fault.kind == "H2" and fault.how == "order":
        return [CrossedOrder(fault, cluster, rng)]
    classes: dict[str, tuple[type[Effect], ...]] = {
        "H1": (NotEntered,),
        "H2": (Inconsistent,),
        "H3": (Hardware,),
        "S1": (SlowCompute,),
        "S2": (SlowLink,),
        "S3": (SlowCompute, SlowLink),
    }
    return [effect(fault, cluster, rng) for effect in classes[fault.kind]]
