"""The order of tasks and exchanges on one pipeline stage, as Megatron-LM runs them.

1F1B and interleaved 1F1B: Narayanan et al. 2021, sections 2.2 and 2.3. GPipe: all forwards, then
all backwards in the same order. A message is named by the virtual stage that sends it; virtual
stage `chunk * pp + stage` is the chunk-th part of the model on that stage.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

SCHEDULES = ("1F1B", "interleaved", "GPipe")


@dataclass(frozen=True)
class Task:
    """A forward or backward of one micro-batch on one chunk."""

    task: str
    chunk: int
    micro_batch: int


@dataclass(frozen=True)
class Message:
    """The result of a task on its way to the next (forward) or previous (backward) stage."""

    task: str
    virtual: int  # of the sender
    micro_batch: int

    def to_virtual(self) -> int:
        return self.virtual + (1 if self.task == "forward" else -1)


@dataclass(frozen=True)
class Exchange:
    """Messages that a stage sends and receives in one group call."""

    sends: tuple[Message, ...] = ()
    receives: tuple[Message, ...] = ()


Item: TypeAlias = Task | Exchange
Program: TypeAlias = tuple[Item, ...]


@dataclass(frozen=True)
class Pipeline:
    """The shape of a pipeline: stages and model chunks on each."""

    pp: int
    chunks: int = 1

    @property
    def virtuals(self) -> int:
        return self.pp * self.chunks

    def input_of(self, stage: int, task: Task) -> Message | None:
        """What a task waits for; None at the ends of the pipeline."""
        virtual = task.chunk * self.pp + stage
        sender = virtual - 1 if task.task == "forward" else virtual + 1
        there = 0 <= sender < self.virtuals
        return Message(task.task, sender, task.micro_batch) if there else None

    def output_of(self, stage: int, task: Task) -> Message | None:
        """What a task sends; None at the ends of the pipeline."""
        message = Message(task.task, task.chunk * self.pp + stage, task.micro_batch)
        return message if 0 <= message.to_virtual() < self.virtuals else None


def program(schedule: str, pipeline: Pipeline, stage: int, micro_batches: int) -> Program:
    """All that a stage does with the micro-batches of one iteration, in order."""
    if schedule == "1F1B":
        items = _one_forward_one_backward(pipeline, stage, micro_batches)
    else:
        order = _interleaved if schedule == "interleaved" else _gpipe
        items = _one_by_one(pipeline, stage, order(pipeline, stage, micro_batches))
    return tuple(item for item in items if item != Exchange())


def forward_only(pipeline: Pipeline, stage: int, micro_batches: int) -> Program:
    """Evaluation: every micro-batch forward, chunk after chunk."""
    tasks = [Task("forward", c, m) for c in range(pipeline.chunks) for m in range(micro_batches)]
    items = _one_by_one(pipeline, stage, tasks)
    return tuple(item for item in items if item != Exchange())


def _one_by_one(pipeline: Pipeline, stage: int, tasks: list[Task]) -> Iterator[Item]:
    for task in tasks:
        yield Exchange(receives=_listed(pipeline.input_of(stage, task)))
        yield task
        yield Exchange(sends=_listed(pipeline.output_of(stage, task)))


def _one_forward_one_backward(pipeline: Pipeline, stage: int, m: int) -> Iterator[Item]:
    """Sends of one direction go with receives of the other in one group call, lest neighbours
    wait for one another."""
    forward = [Task("forward", 0, i) for i in range(m)]
    backward = [Task("backward", 0, i) for i in range(m)]

    def sends(task: Task) -> tuple[Message, ...]:
        return _listed(pipeline.output_of(stage, task))

    def receives(task: Task) -> tuple[Message, ...]:
        return _listed(pipeline.input_of(stage, task))

    warm = min(pipeline.pp - stage - 1, m)
    yield from _one_by_one(pipeline, stage, forward[:warm])
    if warm < m:
        yield Exchange(receives=receives(forward[warm]))
    for ahead, behind in zip(forward[warm:], backward, strict=False):
        yield ahead
        yield Exchange(sends(ahead), receives(behind))
        yield behind
        following = forward[ahead.micro_batch + 1 : ahead.micro_batch + 2]
        yield Exchange(sends(behind), receives(following[0]) if following else ())
    yield from _one_by_one(pipeline, stage, backward[m - warm :])


def _interleaved(pipeline: Pipeline, stage: int, m: int) -> list[Task]:
    """Micro-batches go through a chunk in groups of as many as there are stages."""
    pp, chunks = pipeline.pp, pipeline.chunks
    total = m * chunks

    def at(number: int, task: str) -> Task:
        group, within = divmod(number, pp * chunks)
        chunk = within // pp
        if task == "backward":
            chunk = chunks - 1 - chunk
        return Task(task, chunk, group * pp + within % pp)

    warm = total if m == pp else min(total, 2 * (pp - stage - 1) + (chunks - 1) * pp)
    tasks = [at(number, "forward") for number in range(warm)]
    for number in range(warm, total):
        tasks += [at(number, "forward"), at(number - warm, "backward")]
    return tasks + [at(number, "backward") for number in range(total - warm, total)]


def _gpipe(pipeline: Pipeline, stage: int, m: int) -> list[Task]:  # noqa: ARG001 - all alike
    return [Task(task, 0, i) for task in ("forward", "backward") for i in range(m)]


def _listed(message: Message | None) -> tuple[Message, ...]:
    return () if message is None else (message,)
