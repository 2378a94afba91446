"""One training iteration as boxes on lanes: what the text, the SVG and the console draw.

A lane is a rank, or a stage shown by the rank that decides it; a box is one task on it.
Instants are Unix ns on common time (relation `stage_work`); what is critical, and its slack, come
from `stage_graph` (VenusTrace 3.3, Algorithm 3).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

COMPUTE = ("forward", "backward")
TRANSFERS = ("forward_recv", "forward_send", "backward_recv", "backward_send")
# A letter for each task; transfers are drawn without one.
LETTERS = {
    "forward": "F",
    "backward": "B",
    "transfer": "T",
    "parameters": "P",
    "gradients": "G",
    "embedding": "E",
    "optimizer": "O",
    "garbage": "C",
    "evaluation": "V",
    "checkpoint": "K",
    "other": "X",
}
MEANINGS = {
    "forward": "forward",
    "backward": "backward",
    "transfer": "slow transfer",
    "parameters": "parameters gathered",
    "gradients": "gradients reduced",
    "embedding": "embedding's gradients",
    "optimizer": "optimizer",
    "garbage": "garbage collection",
    "evaluation": "evaluation",
    "checkpoint": "checkpoint",
    "other": "other work",
}


@dataclass(frozen=True)
class Box:
    """One task on a lane. `ended_ns` is None where it is not over.

    `slack_ns` is how much longer it could take without the iteration ending later, `wait_ns` the
    bubble before it; `blamed` if it is what made the iteration slow, or hangs.
    """

    task: str
    chunk: int
    micro_batch: int | None
    started_ns: int
    ended_ns: int | None
    peer: int | None = None
    critical: bool = False
    slack_ns: int | None = None
    wait_ns: int | None = None
    expected_ns: int | None = None
    blamed: bool = False

    @property
    def duration_ns(self) -> int | None:
        return None if self.ended_ns is None else self.ended_ns - self.started_ns

    @property
    def name(self) -> str:
        """`backward of micro-batch 3, chunk 1`."""
        if self.micro_batch is None:
            return MEANINGS.get(self.task, self.task.replace("_", " "))
        chunk = f", chunk {self.chunk}" if self.chunk else ""
        return f"{self.task.replace('_', ' ')} of micro-batch {self.micro_batch}{chunk}"


@dataclass(frozen=True)
class Lane:
    """What one rank did, boxes by start. `ranks` of its stage it stands for, itself included."""

    rank: int
    node: str
    stage: int
    replica: int
    boxes: tuple[Box, ...]
    ranks: int = 1

    @property
    def blamed(self) -> bool:
        return any(box.blamed for box in self.boxes)

    @property
    def title(self) -> str:
        return f"stage {self.stage} rank {self.rank}"


@dataclass(frozen=True)
class Timeline:
    """One iteration. `duration_ns` is what it took the rank that it made latest, `baseline_ns` what
    iterations take that rank, if there were others; None where it is not over. `shown_ns` are the
    instants between which it is drawn."""

    job: str
    iteration: int
    started_ns: int
    ended_ns: int | None
    duration_ns: int | None
    baseline_ns: int | None
    slow: bool
    lanes: tuple[Lane, ...]
    pipelines: int = 1  # of the job; those drawn are in the lanes
    chunks: int = 1
    left_out: int = 0  # lanes
    clock_error_ns: int | None = None
    cut_ns: int | None = None  # the instant up to which evidence goes, where it is not over
    silent_ns: int | None = None  # for how long nothing has happened, if it hangs
    whole_ns: tuple[int, int] | None = None  # of the timeline that these lanes were taken from

    @cached_property
    def shown_ns(self) -> tuple[int, int]:
        if self.whole_ns is not None:
            return self.whole_ns
        ends = [box.ended_ns for box in self.boxes() if box.ended_ns is not None]
        starts = [box.started_ns for box in self.boxes()]
        first = min([self.started_ns, *starts])
        last = max([first + 1, *ends, *starts, self.ended_ns or 0, self.cut_ns or 0])
        return first, last

    @property
    def replicas(self) -> tuple[int, ...]:
        return tuple(sorted({lane.replica for lane in self.lanes}))

    def boxes(self) -> Iterator[Box]:
        for lane in self.lanes:
            yield from lane.boxes

    def path(self) -> list[tuple[int, Box]]:
        """The critical path: lane and box, by start. Ends of one pipeline follow each other."""
        found = [one for one in self._placed() if one[1].critical]
        return sorted(found, key=lambda one: (self.lanes[one[0]].replica, one[1].started_ns))

    def blamed(self) -> list[tuple[int, Box]]:
        """The boxes that made it slow or hang: lane and box, by start."""
        found = [one for one in self._placed() if one[1].blamed]
        return sorted(found, key=lambda one: one[1].started_ns)

    def blaming(self, ranks: Collection[int]) -> Timeline:
        """With marks on what these ranks did alone, if there are any."""
        if not any(lane.blamed and lane.rank in ranks for lane in self.lanes):
            return self
        lanes = (
            lane
            if lane.rank in ranks
            else replace(lane, boxes=tuple(replace(box, blamed=False) for box in lane.boxes))
            for lane in self.lanes
        )
        return replace(self, lanes=tuple(lanes))

    def _placed(self) -> Iterator[tuple[int, Box]]:
        return ((number, box) for number, lane in enumerate(self.lanes) for box in lane.boxes)


def idle_share(timeline: Timeline, lane: Lane) -> float:
    """The share of the iteration in which the lane neither computed nor reduced: its bubble."""
    first, last = timeline.shown_ns
    busy, until = 0, first
    for box in lane.boxes:
        if box.task in TRANSFERS:
            continue
        end = last if box.ended_ns is None else min(box.ended_ns, last)
        busy += max(end - max(box.started_ns, until), 0)
        until = max(until, end)
    return 1 - busy / (last - first)


def compact(timeline: Timeline, most: int) -> Timeline:
    """At most `most` lanes: those with what is blamed, then the critical, then by place."""
    if len(timeline.lanes) <= most:
        return timeline
    order = sorted(
        range(len(timeline.lanes)),
        key=lambda number: (
            not timeline.lanes[number].blamed,
            not any(box.critical for box in timeline.lanes[number].boxes),
            number,
        ),
    )
    kept = sorted(order[:most])
    return replace(
        timeline,
        lanes=tuple(timeline.lanes[number] for number in kept),
        whole_ns=timeline.shown_ns,
        left_out=timeline.left_out + len(timeline.lanes) - most,
    )
