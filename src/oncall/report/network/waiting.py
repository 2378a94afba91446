"""The waiting graph of a collective as it is drawn: lanes of steps, and the path through them.

A step began when the one it waited for had ended; the path back from the step that ended last is
what made the collective take its time (Vedrfolnir III-D1). Of a thousand hosts some are drawn:
those on the path near where it lost most, and those that waited for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

Key = tuple[int, int, int]  # src, dst, step


@dataclass(frozen=True)
class Collective:
    """One collective of a list. `took_ns` is until the newest instant known where it is not over;
    `lost_ns` is what its critical path took too long."""

    job: str
    comm: int
    seq: int
    op: str | None
    ranks: int
    started_ns: int
    took_ns: int
    lost_ns: float
    over: bool

    @property
    def key(self) -> tuple[int, int]:
        return self.comm, self.seq

    @property
    def name(self) -> str:
        """`AllReduce 14 of 0x1f2e`."""
        return f"{self.op or 'collective'} {self.seq} of {self.comm:#x}"


@dataclass(frozen=True)
class Step:
    """What one rank sent another. Instants are Unix ns; `expected_ns` is None where nothing tells,
    `after` is the step it waited for, `gap_ns` from that one's end to its start."""

    src: int
    dst: int
    step: int
    started_ns: int
    ended_ns: int
    over: bool = True
    expected_ns: float | None = None
    excess_ns: float = 0.0
    late: bool = False
    critical: bool = False
    waited_for: str | None = None
    after: Key | None = None
    gap_ns: int | None = None
    waiters: int = 0
    src_node: str = ""
    dst_node: str = ""

    @property
    def key(self) -> Key:
        return self.src, self.dst, self.step

    @property
    def took_ns(self) -> int:
        return self.ended_ns - self.started_ns

    @property
    def pair(self) -> str:
        return f"{self.src}->{self.dst}"


@dataclass(frozen=True)
class Lane:
    """What one rank sent, by time."""

    rank: int
    node: str
    steps: tuple[Step, ...]

    @property
    def blamed(self) -> bool:
        return any(step.late and step.critical for step in self.steps)


@dataclass(frozen=True)
class WaitingGraph:
    """`path`: the critical steps in order, all of them. `lanes`: the senders that are drawn, of the
    time `shown_ns`; `left_out` others sent meanwhile."""

    collective: Collective
    path: tuple[Step, ...]
    lanes: tuple[Lane, ...]
    shown_ns: tuple[int, int]
    left_out: int = 0

    @property
    def worst(self) -> Step | None:
        """The critical step that lost most: from there on it is a matter of the network."""
        late = [step for step in self.path if step.late]
        return max(late, key=lambda step: step.excess_ns, default=None)

    @property
    def before(self) -> int:
        """Steps of the path that ended before what is shown begins."""
        return sum(step.ended_ns <= self.shown_ns[0] for step in self.path)

    @property
    def after(self) -> int:
        """Steps of the path that begin after what is shown."""
        return sum(step.started_ns >= self.shown_ns[1] for step in self.path)

    def arrows(self) -> Iterator[tuple[int, Step, int, Step]]:
        """Where the path goes on in another lane: (lane, step, lane after it, step after it)."""
        places = {step.key: place for place, lane in enumerate(self.lanes) for step in lane.steps}
        for one, then in pairwise(self.path):
            here, there = places.get(one.key), places.get(then.key)
            if here is not None and there is not None and here != there:
                yield here, one, there, then


@dataclass(frozen=True)
class Link:
    """A part of the chain: a late step alone, or all steps between two of those."""

    steps: tuple[Step, ...]

    @property
    def late(self) -> bool:
        return self.steps[0].late

    @property
    def took_ns(self) -> int:
        return self.steps[-1].ended_ns - self.steps[0].started_ns


def chain(path: Sequence[Step], most: int = 12) -> tuple[Link, ...]:
    """The path with its ordinary steps folded; of more late ones than `most` the worst stand
    alone."""
    late = sorted((step for step in path if step.late), key=lambda step: -step.excess_ns)
    alone = {step.key for step in late[:most]}
    links = []
    for is_alone, group in groupby(path, lambda step: step.key in alone):
        steps = tuple(group)
        links += [Link((step,)) for step in steps] if is_alone else [Link(steps)]
    return tuple(links)


def window(path: Sequence[Step], most: int) -> tuple[int, int]:
    """First and last instant of the `most` steps in a row that lost most, centred on them."""
    if len(path) <= most:
        return path[0].started_ns, path[-1].ended_ns
    lost = [max(step.excess_ns, 0.0) if step.late else 0.0 for step in path]
    sums = [sum(lost[at : at + most]) for at in range(len(path) - most + 1)]
    best = [at for at, total in enumerate(sums) if total >= max(sums) * (1 - 1e-9)]
    first = best[len(best) // 2]
    return path[first].started_ns, path[first + most - 1].ended_ns
