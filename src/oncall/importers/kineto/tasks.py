"""Tasks that the program named itself, by `torch.profiler.record_function`.

Names are those of Megatron-LM's timers (`forward-compute`, `backward-send`, ...) and of
torch.distributed.pipelining (`PP:2F0`: stage 2, forward, micro-batch 0). Times are the device's
where it ran anything for the task, else the host's.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from oncall.importers.kineto.trace import Annotation, Call, Trace

_STEP = re.compile(r"ProfilerStep#(\d+)")
_OPTIMIZER = re.compile(r"Optimizer\.step#")
_NUMBERED = re.compile(
    r"(?P<name>[a-z-]{1,80}?)(?:[-_ :#]*+(?:(?:mb|micro[-_ ]?batch)[-_ :#]*+)?(?P<mb>\d+))?"
)
_PIPELINING = re.compile(
    r"PP:(?P<stage>\d+)(?P<action>F|B|I|SEND_F|RECV_F|SEND_B|RECV_B)(?P<mb>\d+)"
)
_ACTIONS = {
    "F": "forward",
    "B": "backward",
    "I": "backward",  # the input's half, which the next stage waits for
    "SEND_F": "forward_send",
    "RECV_F": "forward_recv",
    "SEND_B": "backward_send",
    "RECV_B": "backward_recv",
}
_NAMES = {
    "forward-compute": "forward",
    "backward-compute": "backward",
    "forward-send": "forward_send",
    "forward-recv": "forward_recv",
    "backward-send": "backward_send",
    "backward-recv": "backward_recv",
    "all-grads-sync": "gradients",
    "grads-all-reduce": "gradients",
    "grads-reduce-scatter": "gradients",
    "layernorm-grads-all-reduce": "gradients",
    "params-all-gather": "parameters",
    "embedding-grads-all-reduce": "embedding",
    "optimizer": "optimizer",
    "gc": "garbage",
    "evaluate": "evaluation",
    "save-checkpoint": "checkpoint",
}
_OF_MICRO_BATCH = {"forward", "backward", *_ACTIONS.values()}


@dataclass(frozen=True)
class Task:
    """A task of an iteration. `call` is the send or receive in it."""

    iteration: int
    task: str
    chunk: int | None
    micro_batch: int | None
    started_ns: int
    ended_ns: int
    stage: int | None = None
    call: Call | None = None


@dataclass(frozen=True)
class NamedTasks:
    """The tasks of a trace in the order of the program, and what was inferred."""

    tasks: list[Task]
    notes: tuple[str, ...] = ()


def tasks_of(trace: Trace) -> NamedTasks:
    """What the annotations of a trace name; nothing, if they name no task."""
    annotations = sorted(trace.annotations, key=lambda one: one.at_ns)
    named = _named(annotations)
    if not any(meaning.task in ("forward", "backward") for _, meaning in named):
        return NamedTasks([])
    steps = [(one, int(found[1])) for one in annotations if (found := _STEP.match(one.name))]
    iterations = _iterations_of_steps(named, steps) if steps else _iterations_counted(named)
    transfers = _Transfers(trace.calls)
    tasks, of_host = [], 0
    for (one, meaning), iteration in zip(named, iterations, strict=True):
        call = transfers.within(one) if meaning.transfers else None
        if iteration is None or (meaning.transfers and call is None and transfers.any):
            continue  # outside of the steps, or at an end of the pipeline where nothing moves
        span_ns = trace.device_spans.get(one.external_id or 0)
        of_host += span_ns is None
        start_end_ns = span_ns or (one.at_ns, one.until_ns)
        of = meaning.micro_batch
        tasks.append(Task(iteration, meaning.task, None, of, *start_end_ns, meaning.stage, call))
    counted = any(one.micro_batch is None and one.task in _OF_MICRO_BATCH for one in tasks)
    notes = {
        "its iterations are counted by the optimizer's steps": not steps,
        f"the times of {of_host:,} tasks are the host's, not the device's": of_host > 0,
        "its micro-batches are counted in the order of its tasks": counted,
    }
    return NamedTasks(
        _counted(_chunked(tasks)), tuple(note for note, holds in notes.items() if holds)
    )


def _named(annotations: Sequence[Annotation]) -> list[tuple[Annotation, _Meaning]]:
    """The annotations that name a task; PyTorch's own of optimizers only where no other does."""
    named = [(one, found) for one in annotations if (found := _meaning(one.name))]
    named_by_program = any(one.name == "optimizer" for one, _ in named)
    return [
        (one, found)
        for one, found in named
        if not (named_by_program and _OPTIMIZER.match(one.name))
    ]


def _iterations_of_steps(
    named: Sequence[tuple[Annotation, _Meaning]], steps: Sequence[tuple[Annotation, int]]
) -> Iterator[int | None]:
    """The profiler's step that each task began in; None for one outside of them."""
    for one, _ in named:
        at = bisect_right(steps, one.at_ns, key=lambda pair: pair[0].at_ns) - 1
        step, number = steps[max(at, 0)]
        yield number if step.at_ns <= one.at_ns < step.until_ns else None


def _iterations_counted(named: Sequence[tuple[Annotation, _Meaning]]) -> Iterator[int]:
    """A forward after the optimizer's steps begins the next iteration."""
    iteration, optimized = 0, False
    for _, meaning in named:
        if meaning.task == "forward" and optimized:
            iteration, optimized = iteration + 1, False
        optimized |= meaning.task == "optimizer"
        yield iteration


@dataclass(frozen=True)
class _Meaning:
    task: str
    micro_batch: int | None
    stage: int | None = None

    @property
    def transfers(self) -> bool:
        return self.task.endswith(("send", "recv"))


def _meaning(name: str) -> _Meaning | None:
    if found := _PIPELINING.fullmatch(name):
        return _Meaning(_ACTIONS[found["action"]], int(found["mb"]), int(found["stage"]))
    if _OPTIMIZER.match(name):
        return _Meaning("optimizer", None)
    found = _NUMBERED.fullmatch(name)
    task = _NAMES.get(found["name"]) if found else None
    if found is None or task is None:
        return None
    return _Meaning(task, int(found["mb"]) if found["mb"] and task in _OF_MICRO_BATCH else None)


class _Transfers:
    """The sends and receives of a rank, to be found by when they were called."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self._calls = sorted((call for call in calls if call.p2p), key=lambda call: call.at_ns)
        self.any = bool(self._calls)

    def within(self, one: Annotation) -> Call | None:
        at = bisect_left(self._calls, one.at_ns, key=lambda call: call.at_ns)
        call = self._calls[at] if at < len(self._calls) else None
        return call if call is not None and call.at_ns <= one.until_ns else None


def _chunked(tasks: Sequence[Task]) -> list[Task]:
    """Of several stages stated on one rank, each is a chunk; the rank's own stage is the first."""
    stages = sorted({one.stage for one in tasks if one.stage is not None})
    chunks = {stage: chunk for chunk, stage in enumerate(stages)} | {None: 0}
    own = stages[0] if stages else None
    return [
        replace(one, stage=own, chunk=chunks[one.stage] if one.task in _OF_MICRO_BATCH else None)
        for one in tasks
    ]


def _counted(tasks: Sequence[Task]) -> list[Task]:
    """Micro-batches that no name tells: the n-th task of its kind is that of micro-batch n."""
    seen: dict[tuple[int, str, int | None], int] = defaultdict(int)
    counted = []
    for one in tasks:
        if one.micro_batch is None and one.task in _OF_MICRO_BATCH:
            key = one.iteration, one.task, one.chunk
            counted.append(replace(one, micro_batch=seen[key]))
            seen[key] += 1
        else:
            counted.append(one)
    return counted
