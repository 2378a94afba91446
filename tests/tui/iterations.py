"""Iterations made by hand, for the stage screen: 1F1B on four stages, one backward too long."""

from __future__ import annotations

from dataclasses import replace

from oncall.views.snapshot import Table
from oncall.views.stages.iteration import StagesView, TaskCard
from oncall.views.stages.iterations import IterationLine
from oncall.views.stages.timeline import Box, Lane, Timeline

from .snapshots import FIRST_NS, JOB

MS = 10**6
STAGES, MICRO_BATCHES, PIPELINES = 4, 8, 2
FORWARD, BACKWARD, SEND, EXCESS = 40 * MS, 80 * MS, MS, 400 * MS
SLOW, LAST = 7, 11
BASELINE = 1_400 * MS
GUILTY = (2, "backward", 3)


def order(stage: int) -> list[tuple[str, int]]:
    """What a stage does in turn: warm-up, one forward one backward, the rest."""
    warm = STAGES - 1 - stage
    tasks = [("forward", number) for number in range(warm)]
    for number in range(MICRO_BATCHES - warm):
        tasks += [("forward", warm + number), ("backward", number)]
    return tasks + [("backward", number) for number in range(MICRO_BATCHES - warm, MICRO_BATCHES)]


def times(guilty: bool) -> dict[tuple[int, str, int], tuple[int, int]]:
    """(stage, task, micro-batch) -> start and end, ns since the iteration began."""
    done: dict[tuple[int, str, int], tuple[int, int]] = {}
    free, todo = [0] * STAGES, [order(stage) for stage in range(STAGES)]
    while any(todo):
        for stage in range(STAGES):
            while todo[stage]:
                task, number = todo[stage][0]
                source = stage - 1 if task == "forward" else stage + 1
                ready = 0
                if 0 <= source < STAGES:
                    if (source, task, number) not in done:
                        break
                    ready = done[source, task, number][1] + SEND
                taken = FORWARD if task == "forward" else BACKWARD
                if guilty and (stage, task, number) == GUILTY:
                    taken += EXCESS
                begin = max(free[stage], ready)
                free[stage] = begin + taken
                done[stage, task, number] = begin, free[stage]
                todo[stage].pop(0)
    return done


def lane(stage: int, pipeline: int, start_ns: int, guilty: bool) -> Lane:
    boxes, free = [], 0
    found = times(guilty)
    for task, number in order(stage):
        begin, end = found[stage, task, number]
        blamed = guilty and (stage, task, number) == GUILTY
        if begin > free:
            boxes.append(
                Box(f"{task}_recv", 0, number, start_ns + free, start_ns + begin, 2 * stage)
            )
        # Made up, and enough for a picture: what follows the long task, and what it waited for.
        critical = blamed or (guilty and task == "backward" and number == MICRO_BATCHES - 1)
        expected = FORWARD if task == "forward" else BACKWARD
        slack = 0 if critical else 12 * MS
        boxes.append(
            Box(task, 0, number, start_ns + begin, start_ns + end, None, critical, slack,
                begin - free, expected, blamed)
        )  # fmt: skip
        free = end
    boxes.append(Box("gradients", 0, None, start_ns + free, start_ns + free + 30 * MS))
    last = max(end for _, end in found.values()) + 40 * MS
    boxes.append(Box("optimizer", 0, None, start_ns + last, start_ns + last + 30 * MS))
    rank = 4 * stage + 2 * pipeline
    return Lane(rank, f"gpu{17 + rank // 8:03d}", stage, pipeline, tuple(boxes), ranks=2)


def timeline(iteration: int = SLOW, pipeline: int = 0, every_rank: bool = False) -> Timeline:
    guilty = iteration == SLOW and pipeline == 0
    start_ns = FIRST_NS + iteration * BASELINE
    lanes = [lane(stage, pipeline, start_ns, guilty) for stage in range(STAGES)]
    if every_rank:
        lanes = [
            replace(one, rank=one.rank + member, ranks=1) for one in lanes for member in (0, 1)
        ]
    end_ns = max(box.ended_ns or 0 for one in lanes for box in one.boxes)
    return Timeline(
        JOB, iteration, start_ns, end_ns, end_ns - start_ns, BASELINE, guilty, tuple(lanes),
        PIPELINES, clock_error_ns=100_000,
    )  # fmt: skip


def stages_view(
    iteration: int | None = None, pipeline: int | None = None, every_rank: bool = False
) -> StagesView:
    lines = tuple(
        IterationLine(
            number,
            FIRST_NS + number * BASELINE,
            BASELINE + (EXCESS if number == SLOW else 3 * (number % 5) * MS),
            BASELINE,
            slow=number == SLOW,
            whole=True,
        )
        for number in range(LAST + 1)
    )
    drawn = timeline(SLOW if iteration is None else iteration, pipeline or 0, every_rank)
    return StagesView(lines, drawn, tuple(range(PIPELINES)))


def task_card(rank: int, iteration: int, box: Box) -> TaskCard:
    facts = (
        ("place", f"rank {rank} on gpu018, stage 2 of pipeline 0"),
        ("waits for", "forward 4 on the same rank"),
        ("waits for", "backward 3 on stage 3, rank 12, sent within 866 µs"),
        ("tensor group", f"rank {rank}: 480 ms own time, last in 4 of 4 calls"),
        ("tensor group", f"rank {rank + 1}: 79.6 ms own time"),
    )
    calls = tuple(
        ("AllReduce", "tp 8-9", f"{at} ms", "1.2 ms", "32 MiB") for at in (20, 40, 440, 480)
    )
    columns = ("call", "communicator", "after", "took", "size")
    return TaskCard(rank, iteration, box, facts, Table(columns, calls, 4))
